"""Batch: the manifest of a closed window; with it, everything that follows is a pure function."""

from typing import ClassVar, Literal

from pydantic import Field

from combee_schemas.base import Id, Message, Score, Source, Sparse, Value
from combee_schemas.marks import Name, ReflectionOffset, Text
from combee_schemas.plan import Plan


class Member(Value):
    """A reflection of the batch: its offset in ``reflections``, its id, its dead-letter attempt, and its run."""

    offset: ReflectionOffset
    reflection_id: Id
    attempt: int = 0
    score: Score = Field(default_factory=dict)
    success: bool | None = None
    source: Source | None = None


class Cluster(Value):
    """Entries that a consolidation asks the model about together."""

    why: Literal["alike", "harmful"]
    """alike: near-duplicates, to be merged; harmful: runs found it harmful far more often than helpful."""
    entry_ids: tuple[Name, ...]


class Batch(Sparse, Message):
    """Which reflections, how many copies, which seed, which tree; key: playbook.

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
    """Of a consolidation, which has no members: what the model is asked about."""
    embeddings: Text = ""
    """Of a consolidation: the model whose embeddings were compared, too, or why none were; empty: none is set."""
    dropped: tuple[Member, ...] = ()
    """Repeats that were recognised while this window was open: the first of them, up to 128 KiB."""
    copies: int
    """As they were made: 1 where the batch was too small for more."""
    shape_reason: Text = ""
    """Why this many groups and levels, in words."""
    oldest_unpublished_offset: int = -1
    """Where in ``batches`` the oldest batch of this partition stood that had no version yet; −1: none."""
    oldest_beyond_offset: int = -1
    """Where the first batch of this partition stood that took reflections beyond one that waits still, because its
    source had filled its share; −1: none."""
    max_inflight_batches: int = 1
    """How many batches might lack a version at once when this one closed."""
