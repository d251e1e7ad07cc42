"""Settings of batches."""

from pydantic import Field

from combee.settings.group import Group
from combee_schemas.base import SourceNames
from combee_schemas.plan import Prompts, SmallBatches

LARGEST_BATCH = 2000
BATCH_SIZE = (
    "original reflections per batch; fixed where COMBEE_BATCH_POLICY is not set too, else the start value"
)


class BatchSettings(Group):
    """When windows close and how a batch is cut (paper defaults: p = 2, k = ⌊√n⌋)."""

    batch_size: int = Field(40, ge=1, le=LARGEST_BATCH, description=BATCH_SIZE)
    copies: int = Field(2, ge=1, le=8, description="p: copies of each reflection")
    groups: int = Field(
        0,
        ge=0,
        le=LARGEST_BATCH,
        description="k: groups of a batch, at most one per reflection; 0: the paper's ⌊√n⌋, n reflections",
    )
    method: str = Field("ace", min_length=1, description="ace, gepa or one installed")
    prompts: Prompts = Field("full", description="for small models: additions only, with a worked example")
    reflect_entry_tokens: int = Field(
        2_000,
        ge=0,
        description="entries that a reflector reads, nearest to the task first (tokens)",
    )
    reflect_trace_tokens: int = Field(
        32_000, ge=500, description="a longer trace is cut in the middle (tokens)"
    )
    aggregate_tokens: int = Field(
        32_000, ge=500, description="reflections or proposals that one call may read (tokens)"
    )
    carry: bool = Field(
        True, description="pass on proposals that a combine neither used nor dropped by name (recorded)"
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
    sources: SourceNames = Field(
        "declared", description="names of sources that count: as `declared`, or only if `proven`"
    )
    source_share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="part of a batch that one source may fill beside others; the rest waits; 1: all",
    )
    source_operations: int = Field(
        0,
        ge=0,
        description="operations of a batch that may rest on one source alone, beside others; 0: any number",
    )
    new_source_batches: int = Field(
        0,
        ge=0,
        description="what a source teaches is proposed until it has taught in so many batches, beside one that has;"
        " 0: off",
    )
    propose_flagged: bool = Field(
        False, description="texts like instructions, links, secrets or tool calls are only proposed"
    )
    stragglers: bool = Field(
        False, description="combine without late groups, and ask slow combines again: off or on"
    )
    small_batches: SmallBatches = Field(
        "one-call",
        description="of 4 to 8 reflections: `one-call`, or the `paper`'s two groups and their combine",
    )
    scope: int = Field(
        0,
        ge=0,
        description="entries that a curator reads, the nearest to its items; 0: all",
    )
    consolidate_above: float = Field(
        0,
        ge=0,
        le=1,
        description="consolidate unasked above this share of the token budget, after each tenth added; 0: never",
    )
    salt: str = Field(
        "",
        max_length=80,
        description="any text: who does not know it foresees neither how batches are dealt nor ACE's marks",
    )
    fan_in: int = Field(32, ge=2, description="children per node above level 0")
    max_wait_s: float = Field(30, gt=0, description="an unfilled window closes after this (s)")
    max_inflight_batches: int = Field(1, ge=1, le=16, description="unpublished batches per playbook")
    batch_timeout_s: float = Field(900, gt=0, description="re-emit a batch without a version after this (s)")
