"""Reflection: the lessons learned from one trace, with the ACE reflector's fields verbatim."""

from typing import ClassVar, Literal

from pydantic import Field

from combee_schemas.base import (
    KIB,
    Id,
    Message,
    OnErasure,
    PlaybookName,
    Score,
    Sha256,
    Shown,
    Source,
    Usage,
    Value,
    is_blank,
)
from combee_schemas.marks import Hash, Name, Text

Tag = Literal["helpful", "harmful", "neutral"]

LESSON_FIELDS = (
    "reasoning",
    "error_identification",
    "root_cause_analysis",
    "correct_approach",
    "key_insight",
)
"""The fields that hold an ACE reflector's findings."""


MAX_EXCERPT_CHARS = 1_000


class BulletTag(Value):
    """Whether one playbook entry helped or harmed one run (ACE: bullet tag)."""

    id: Name
    tag: Tag


class Reflection(Message):
    """Raw material of one lesson; key: playbook. Its producer chooses the id, which is unique within the playbook."""

    type: ClassVar[str] = "reflection"
    version_number: ClassVar[int] = 2
    max_bytes: ClassVar[int] = 256 * KIB
    RUN_IDS: ClassVar[tuple[str, ...]] = ("reflection_id", "trace_id")
    ON_ERASURE: ClassVar[OnErasure] = "dropped"

    reflection_id: Id
    playbook: PlaybookName
    reasoning: Text = ""
    error_identification: Text = ""
    root_cause_analysis: Text = ""
    correct_approach: Text = ""
    key_insight: Text = ""
    side_info: dict[Name, Text] = Field(default_factory=dict)
    """Data about the run for methods other than ``ace`` (GEPA: Inputs, Generated Outputs, Feedback)."""
    bullet_tags: tuple[BulletTag, ...] = ()
    trace_id: Name | None = None
    task_excerpt: Text = Field("", max_length=MAX_EXCERPT_CHARS)
    """In a reflection derived from a trace: an excerpt of the run's task."""
    trace_digest: Hash = ""
    """In a reflection derived from a trace: the trace's fingerprint; empty: unknown."""
    shown: Shown | None = None
    bullet_ids: tuple[Name, ...] = ()
    """The entries that the agent reports to have used (ACE: bullet ids)."""
    score: Score = Field(default_factory=dict)
    success: bool | None = None
    source: Source | None = None
    request: Sha256 = ""
    """In a reflection by a model: SHA-256 of the request (model, messages, schema, options)."""
    usage: Usage = Usage()
    created_at_ms: int = 0

    @property
    def run_id(self) -> str | None:
        """The id of its run."""
        return self.trace_id

    @property
    def lack(self) -> str:
        """What the reflection lacks to be usable: ACE's fields, or other methods' data; empty: nothing."""
        if not is_blank((*(getattr(self, name) for name in LESSON_FIELDS), *self.side_info.values())):
            return ""
        return f"the lesson is empty: fill in at least one of {', '.join((*reversed(LESSON_FIELDS), 'side_info'))}"
