"""Batch: the manifest of a closed window; everything downstream is a pure function of it."""

from typing import ClassVar, Literal

from pydantic import Field

from combee_schemas.base import Id, Message, Score, Source, Sparse, Value
from combee_schemas.marks import Name, ReflectionOffset, Text
from combee_schemas.plan import Plan


class Member(Sparse):
    """A reflection of the batch: its offset in ``reflections``, its id, its dead-letter attempt, and its run."""

    UNWRITTEN = ("erased",)

    offset: ReflectionOffset
    reflection_id: Id
    attempt: int = 0
    score: Score = Field(default_factory=dict)
    success: bool | None = None
    source: Source | None = None
    erased: bool = False
    """Whether its run was forgotten: a lesson of several runs goes with the last of them."""


class Cluster(Value):
    """Entries that a consolidation asks the model about together."""

    why: Literal["alike", "harmful"]
    """alike: near-duplicates, to be merged; harmful: runs found it harmful far more often than helpful."""
    entry_ids: tuple[Name, ...]
    score: float = 0.0
    """How alike its most alike pair is, 0 … 1."""
    by: Literal["", "words", "meaning"] = ""
    """By what that pair is alike; meaning: by embeddings."""


class Batch(Sparse, Message):
    """The batch's reflections, number of copies, seed and tree; key: playbook.

    Groups are not listed: they are recomputed from members, ``copies``, ``plan.widths[0]`` and ``seed``.
    """

    type: ClassVar[str] = "batch"
    version_number: ClassVar[int] = 2
    UNWRITTEN = ("clusters", "oldest_beyond_offset")
    PLAYBOOK: ClassVar[str] = "plan.playbook"

    plan: Plan
    seed: int
    members: tuple[Member, ...]
    clusters: tuple[Cluster, ...] = ()
    """Clusters that a consolidation (a batch without members) asks the model about."""
    embeddings: Text = ""
    """In a consolidation: the embedding model used, or why no embeddings were compared; empty: none is configured."""
    dropped: tuple[Member, ...] = ()
    """The first repeats recognised while this window was open, up to 128 KiB."""
    copies: int
    """Number of copies actually made: 1 where the batch was too small for more."""
    shape_reason: Text = ""
    """Reason for this number of groups and levels, in words."""
    oldest_unpublished_offset: int = -1
    """Offset in ``batches`` of this partition's oldest batch without a version; −1: none."""
    oldest_beyond_offset: int = -1
    """Offset in ``batches`` of this partition's first batch with reflections beyond one that still waits because its
    source had filled its share; −1: none."""
    max_inflight_batches: int = 1
    """Maximum number of batches without a version when this batch closed."""
