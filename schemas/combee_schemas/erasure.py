"""Erasure: that something was forgotten, when and by whom; never what."""

from typing import ClassVar, Literal

from pydantic import Field

from combee_schemas.base import Id, Message
from combee_schemas.marks import Name, Word

SelectorKind = Literal["subject", "trace", "filter"]


class Erasure(Message):
    """One run of ``combee forget``; key: its id, which is drawn by chance and says nothing of what was chosen."""

    type: ClassVar[str] = "erasure"
    PLAYBOOK: ClassVar[str] = ""

    erasure_id: Id
    selector: SelectorKind
    """What kind of choice it was. No hash of it is kept: an address can be guessed, and the guess be checked."""
    issued_by: Name = ""
    erased_at_ms: int = 0
    dropped: dict[Word, int] = Field(default_factory=dict)
    """By topic: records that are gone."""
    rewritten: dict[Word, int] = Field(default_factory=dict)
    """By topic: records that stand there without what was erased."""
    entries: int = 0
    """Entries of playbooks that are gone from all versions that had them."""
