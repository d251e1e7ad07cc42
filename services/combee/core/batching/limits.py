"""Constant limits of batches, the same in every deployment."""

from dataclasses import dataclass

from combee_schemas.plan import BatchOptions, PlanSettings
from combee_schemas.topics import MAX_LEVELS

BATCH_BYTES = 8 << 20
"""Maximum bytes of reflections per batch (a thousand long ones): shuffle handles a batch in one transaction."""
GROUP_BYTES = 700 << 10
"""Maximum bytes of reflections per group: with the header they fit Kafka's default record size of 1 MiB."""
SPAN = 100_000
"""Maximum number of records from a window's oldest reflection to the newest; shuffle rereads them at start."""
PRODUCT = PlanSettings(**BatchOptions().model_dump(), max_levels=MAX_LEVELS, group_bytes=GROUP_BYTES)
"""Batch settings used where nothing is configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleLimits:
    """Memory and retries of shuffle."""

    window_memory_bytes: int = 64 << 20
    """Maximum memory for bodies in the windows of a partition; further bodies are read again from the log."""
    duplicate_horizon: int = 2000
    """Distance in a partition of ``batches`` within which repeats are recognised (offsets; a batch takes two): a
    thousand batches hold far more reflections than an agent sends again."""
    retries: int = 3
    """Number of times a batch is emitted again before it is closed degraded: a fault that outlasts four attempts is
    permanent."""


SHUFFLE_LIMITS = ShuffleLimits()
