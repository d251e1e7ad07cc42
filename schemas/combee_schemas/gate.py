"""Gate: what judges say of a candidate, and what was decided about it.

A gated playbook has two labels: ``production`` is what agents read, ``candidate`` the version that is being judged.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from combee_schemas.base import KIB, Message, PlaybookName
from combee_schemas.marks import Name, Text, Word

Judge = Annotated[Word, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,39}$")]
"""Such as evaluate (held-out questions), canary (outcomes of a share of the callers) or approve (a person).

Any name, so that readers of an older release read the labels of a gate that asks a newer judge."""
Figures = Annotated[
    dict[Annotated[Word, StringConstraints(min_length=1, max_length=40)], float], Field(max_length=40)
]
"""Named numbers that a verdict rests on, such as ``n``, ``difference``, ``low`` and ``high``."""
Reason = Annotated[Text, StringConstraints(max_length=2_000)]
MAX_REJECTED = 200
RejectedNames = Annotated[
    tuple[Annotated[Name, StringConstraints(max_length=200)], ...], Field(max_length=MAX_REJECTED)
]
"""Entries or sources that a person rejects of a candidate."""


class Verdict(Message):
    """What one judge says of a candidate; key: playbook. The first verdict of a judge on a candidate counts.

    A person's comes as a command (``approve``, ``reject``): whoever may write verdicts is not a person by that.
    """

    type: ClassVar[str] = "verdict"
    max_bytes: ClassVar[int] = 64 * KIB

    playbook: PlaybookName
    candidate: int = Field(ge=1)
    """The version that is judged."""
    production: int = Field(ge=0)
    """The version that it was compared with; 0: nothing. Beside another production version it does not count."""
    judge: Judge
    accepts: bool
    undecided: bool = False
    """Not accepted because too little is known: the candidate is closed, and its batches stay in the line."""
    entry_ids: RejectedNames = ()
    sources: RejectedNames = ()
    """What alone a person rejects of the candidate: entries, or what sources taught; neither: all of it."""
    reason: Reason = ""
    figures: Figures = Field(default_factory=dict)
    judged_by: Annotated[Text, StringConstraints(max_length=300)] = ""
    """Such as ``model openai/gpt-4.1-mini``, ``user:ada@desk``."""
    judged_at_ms: int = 0


Decided = Literal["opened", "accepted", "rejected", "moved"]
"""opened: the gate was turned on, or its playbook is new; accepted, rejected: the judges decided; moved: a person let
``production`` point at another version, past the judges."""


class Decision(Message):
    """What was decided about which version agents read; key: playbook. Written in one transaction with the label."""

    type: ClassVar[str] = "decision"
    max_bytes: ClassVar[int] = 256 * KIB

    playbook: PlaybookName
    decided: Decided
    candidate: int = Field(0, ge=0)
    """The version that it is about, if one was judged."""
    before: int = Field(0, ge=0)
    """The production version until then; 0: none."""
    version: int = Field(ge=0)
    """The production version from now on; 0: none, agents read nothing yet."""
    judges: tuple[Judge, ...] = ()
    """Those that had to accept."""
    verdicts: tuple[Verdict, ...] = ()
    """With reasons and figures."""
    reason: Reason = ""
    taken_back: int = Field(0, ge=0)
    """Reflections of a rejected candidate's batches that count no longer."""
    made: int = Field(0, ge=0)
    """The version without them; 0: none was made."""
    since_ms: int = 0
    """Since when the candidate was judged."""
    decided_by: Annotated[Text, StringConstraints(max_length=300)] = ""
    """Who moved the label, or spoke last."""
    decided_at_ms: int = 0
    """As the label's ``moved_at_ms``."""
