"""Erasure: records when and by whom data was erased, never what."""

from typing import ClassVar, Literal

from pydantic import Field

from combee_schemas.base import Id, Message
from combee_schemas.marks import Name, Word

SelectorKind = Literal["subject", "trace", "filter"]


class Erasure(Message):
    """One run of ``combee forget``; key: its random id, which reveals nothing about the selection."""

    type: ClassVar[str] = "erasure"
    PLAYBOOK: ClassVar[str] = ""

    erasure_id: Id
    selector: SelectorKind
    """Kind of the selector. No hash of its value is kept: an address can be guessed, and the guess verified."""
    issued_by: Name = ""
    erased_at_ms: int = 0
    dropped: dict[Word, int] = Field(default_factory=dict)
    """Number of dropped records per topic."""
    rewritten: dict[Word, int] = Field(default_factory=dict)
    """Number of rewritten records per topic."""
    entries: int = 0
    """Number of playbook entries removed from all versions."""
