"""Trace: the record of one agent run."""

from typing import Any, ClassVar

from pydantic import Field

from combee_schemas.base import Id, Message, OnErasure, PlaybookName, Score, Shown, Source, is_blank
from combee_schemas.marks import Name, Text

RUN_FIELDS = ("task", "trajectory", "answer", "feedback")
"""The fields that a reflection can be derived from."""
PASSED_ON = ("playbook", "shown", "bullet_ids", "score", "success", "source")
"""The fields that the reflection and the outcome of a run take over from its trace."""


class Trace(Message):
    """Task, trajectory, answer and feedback of one run; key: trace id, which belongs to the playbook."""

    type: ClassVar[str] = "trace"
    version_number: ClassVar[int] = 2
    RUN_IDS: ClassVar[tuple[str, ...]] = ("trace_id",)
    ON_ERASURE: ClassVar[OnErasure] = "dropped"

    trace_id: Id
    playbook: PlaybookName
    task: Text
    trajectory: Text = ""
    answer: Text = ""
    feedback: Text = ""
    target: Text | None = None
    """The right answer, if known."""
    agent: Text = ""
    shown: Shown | None = None
    bullet_ids: tuple[Name, ...] = ()
    """The entries that the agent reports to have used (ACE: bullet ids)."""
    score: Score = Field(default_factory=dict)
    success: bool | None = None
    source: Source | None = None
    created_at_ms: int = 0
    original_bytes: int | None = None
    """Original size of a trace that was cut in the middle; None: it was not cut."""
    metadata: dict[Name, Text] = Field(default_factory=dict)

    @property
    def run_id(self) -> str:
        """The id of its run."""
        return self.trace_id

    @property
    def passed_on(self) -> dict[str, Any]:
        """The fields of the run's reflection and outcome that the trace gives."""
        return {name: getattr(self, name) for name in PASSED_ON}

    @property
    def lack(self) -> str:
        """What the trace lacks to be reflected on; empty: nothing."""
        blank = is_blank(getattr(self, name) for name in RUN_FIELDS)
        return f"the trace is empty: fill in at least one of {', '.join(RUN_FIELDS)}" if blank else ""
