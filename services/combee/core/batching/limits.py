"""What bounds batches, beside the settings: constants, alike in every deployment."""

from dataclasses import dataclass

from combee_schemas.plan import BatchOptions, PlanSettings

BATCH_BYTES = 8 << 20
"""Reflections per batch: a thousand long ones; shuffle reads and writes them in one transaction."""
GROUP_BYTES = 700 << 10
"""Reflections per group: with the header they fit a record, and Kafka's default is 1 MiB."""
SPAN = 100_000
"""Records that a window's oldest reflection may lag: so many are read again at most when shuffle starts."""
MAX_LEVELS = 4
"""Levels of the scan tree: at 32 children per node, four combine more groups than a batch can have."""
PRODUCT = PlanSettings(**BatchOptions().model_dump(), max_levels=MAX_LEVELS, group_bytes=GROUP_BYTES)
"""How batches are made where nothing is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleLimits:
    """How much shuffle remembers, and how often it tries."""

    window_memory_bytes: int = 64 << 20
    """Bodies held in memory by the windows of a partition; what is beyond is read again from the log."""
    duplicate_horizon: int = 2000
    """How far back in a partition of ``batches`` repeats are recognised (offsets; a batch takes two): a thousand
    batches hold far more than an agent sends again."""
    retries: int = 3
    """Re-emissions of a batch before it is closed degraded: a fault that outlasts four attempts is no passing one."""


SHUFFLE_LIMITS = ShuffleLimits()
