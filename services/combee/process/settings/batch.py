"""Settings of batches."""

from typing import Annotated

from pydantic import Field

from combee.process.settings.group import Group
from combee_schemas.plan import BatchOptions, BatchSize

StartSize = Annotated[
    BatchSize,
    Field(
        description="original reflections per batch; fixed where COMBEE_BATCH_POLICY is not set, else the start value"
    ),
]
InFlight = Annotated[
    int,
    Field(
        ge=1,
        le=16,
        description="unpublished batches per playbook; more where windows are full and batches wait",
    ),
]


class BatchSettings(BatchOptions, Group):
    """When windows close and how a batch is cut (paper defaults: p = 2, k = ⌊√n⌋)."""

    batch_size: StartSize = 40
    reflect_entry_tokens: int = Field(
        2_000,
        ge=0,
        description="entries that a reflector reads, nearest to the task first; fewer for a small context (tokens)",
    )
    reflect_trace_tokens: int = Field(
        32_000, ge=500, description="a longer trace is cut in the middle; less for a small context (tokens)"
    )
    probation: int = Field(
        1,
        ge=1,
        le=20,
        description="reflections that must support an entry before agents see it; 1: off",
    )
    probation_sources: int = Field(
        1, ge=1, le=5, description="sources that these must come from; unnamed ones are one"
    )
    consolidate_above: float = Field(
        0,
        ge=0,
        le=1,
        description="consolidate unasked above this share of the token budget, after each tenth added; 0: never",
    )
    max_wait_s: float = Field(
        30,
        gt=0,
        description="an unfilled window closes after this: longer for fuller batches, shorter for newer lessons (s)",
    )
    max_inflight_batches: InFlight = 1
    batch_timeout_s: float = Field(
        900,
        gt=0,
        description="re-emit a batch without a version after this: longer than all its model calls take (s)",
    )
