"""Gate: judges' verdicts on a candidate, and the decision about it.

A gated playbook has two labels: agents read ``production``; ``candidate`` is the version under judgement.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from combee_schemas.base import KIB, Message, PlaybookName
from combee_schemas.marks import Name, Text, Word

Judge = Annotated[Word, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,39}$")]
"""Name of a judge, such as evaluate (held-out questions), canary (outcomes of a share of callers) or approve (a
person).

Any name is valid, so that readers of an older release can read the labels of a gate with a newer judge."""
Figures = Annotated[
    dict[Annotated[Word, StringConstraints(min_length=1, max_length=40)], float], Field(max_length=40)
]
"""Named numbers behind a verdict, such as ``n``, ``difference``, ``low`` and ``high``."""
Reason = Annotated[Text, StringConstraints(max_length=2_000)]
MAX_REJECTED = 200
RejectedNames = Annotated[
    tuple[Annotated[Name, StringConstraints(max_length=200)], ...], Field(max_length=MAX_REJECTED)
]
"""Entries or sources of a candidate that a person rejects."""


class Verdict(Message):
    """One judge's verdict on a candidate; key: playbook. A judge's first verdict on a candidate counts.

    A person's verdict is a command (``approve``, ``reject``); a record of this topic is never a person's.
    """

    type: ClassVar[str] = "verdict"
    max_bytes: ClassVar[int] = 64 * KIB

    playbook: PlaybookName
    candidate: int = Field(ge=1)
    """The judged version."""
    production: int = Field(ge=0)
    """The version it was compared with; 0: none. The verdict does not count for another production version."""
    judge: Judge
    accepts: bool
    undecided: bool = False
    """Not accepted for lack of data: the candidate is closed, and its batches stay in the line."""
    entry_ids: RejectedNames = ()
    sources: RejectedNames = ()
    """Sources that a person rejects; without sources and entries, the whole candidate is rejected."""
    reason: Reason = ""
    figures: Figures = Field(default_factory=dict)
    judged_by: Annotated[Text, StringConstraints(max_length=300)] = ""
    """Issuer of the verdict, such as ``model openai/gpt-4.1-mini``, ``user:ada@desk``."""
    judged_at_ms: int = 0


Decided = Literal["opened", "accepted", "rejected", "moved"]
"""opened: the gate was turned on, or its playbook is new; accepted, rejected: the judges decided; moved: a person
moved ``production`` to another version without the judges."""


class Decision(Message):
    """A decision about the version that agents read; key: playbook. One transaction writes it and the label."""

    type: ClassVar[str] = "decision"
    max_bytes: ClassVar[int] = 256 * KIB

    playbook: PlaybookName
    decided: Decided
    candidate: int = Field(0, ge=0)
    """The judged version, if there was one."""
    before: int = Field(0, ge=0)
    """The previous production version; 0: none."""
    version: int = Field(ge=0)
    """The new production version; 0: none, agents read nothing yet."""
    judges: tuple[Judge, ...] = ()
    """The judges that had to accept."""
    verdicts: tuple[Verdict, ...] = ()
    """Their verdicts, with reasons and figures."""
    reason: Reason = ""
    taken_back: int = Field(0, ge=0)
    """Number of reflections of the rejected candidate's batches that no longer count."""
    made: int = Field(0, ge=0)
    """The version without those reflections; 0: none was made."""
    since_ms: int = 0
    """Time at which judging began."""
    decided_by: Annotated[Text, StringConstraints(max_length=300)] = ""
    """Who moved the label, or gave the last verdict."""
    decided_at_ms: int = 0
    """Time of the decision, equal to the label's ``moved_at_ms``."""
