"""Bodies of commands, as the OpenAPI document describes them."""

from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field

from combee.core.formats.files import Format
from combee.gateway.values import LabelName, whole
from combee_schemas.base import BranchName, Id, Value
from combee_schemas.gate import MAX_REJECTED, Reason

MOST_TEXT = 800_000
Number = Annotated[int, Field(ge=1, le=2**31), BeforeValidator(whole)]
ComparedVersion = Annotated[int, Field(ge=0, le=2**31), BeforeValidator(whole)]
"""0: none."""

Own = Annotated[bool | int | str, BeforeValidator(whole)]


class CommandBody(Value):
    """Fields of every command's body."""

    model_config = ConfigDict(extra="forbid", strict=True)

    command_id: Id | None = None
    """A repeat with the same id has no second effect; None derives an id from the request's content."""


class Promote(CommandBody):
    """Point a label at a version."""

    label: LabelName
    version: Number | None = None
    """The version, None for the newest."""


class Judgement(CommandBody):
    """Approve or reject the candidate of a gated playbook."""

    version: Number | None = None
    """The candidate that was reviewed, None for any."""
    production: ComparedVersion | None = None
    """The version that it was compared with, 0 if there was none, None for any that agents read."""
    reason: Reason = ""


class Rejection(Judgement):
    """Reject the candidate of a gated playbook, or a part of it; the rest becomes the next candidate."""

    entry_ids: list[Id] = Field(default=[], max_length=MAX_REJECTED)
    """Entries to reject, of those that the candidate adds, changes or removes."""
    sources: list[str] = Field(default=[], max_length=MAX_REJECTED)
    """Sources to reject: what they taught since production is taken back."""


class Pause(CommandBody):
    """Let a playbook and its branches learn nothing for a while."""

    until: str | None = Field(default=None, max_length=40)
    """Such as 2026-01-31T15:00Z, in UTC where no zone is named; None: as long as what waits is retained."""


class Rollback(CommandBody):
    """Make a new version with an old version's content."""

    version: Number


class NewBranch(CommandBody):
    """Fork a branch, which learns from the playbook's reflections with its own settings."""

    branch: BranchName = Field(min_length=1)
    settings: dict[str, Own] = Field(default={}, max_length=50)
    """Settings of the branch, such as ``{"batch_size": 10}``; the others are its playbook's."""


class Adopt(CommandBody):
    """Publish a branch's entries as the playbook's next version."""

    version: Number | None = None
    """The branch's version, None for the newest."""


class Edit(CommandBody):
    """Change entries; ``text`` is the edited Markdown of ``format=md``."""

    text: str = Field(max_length=MOST_TEXT)
    version: Number | None = None
    """The version that was edited; None uses the version in the text's title, else the newest."""


class Keep(CommandBody):
    """Confirm entries by hand; proposed ones become active."""

    entry_ids: list[Id] = Field(min_length=1, max_length=1000)


class Import(CommandBody):
    """Replace a playbook's content, or start a playbook."""

    text: str = Field(max_length=MOST_TEXT)
    format: Format


class Revoke(CommandBody):
    """Revoke reflections: entries that rest on them alone are removed, others return to their earlier text."""

    reflection_ids: list[Id] = Field(default=[], max_length=1000)
    rules: list[str] = Field(default=[], max_length=100)
    """``source:NAME``, ``id:ID``, ``text:WORDS``, ``since:TIME``, ``until:TIME`` or ``between:TIME/TIME``."""

    @property
    def chosen(self) -> list[str]:
        """Reflection ids and rules, all as rules."""
        return [*(f"id:{reflection_id}" for reflection_id in self.reflection_ids), *self.rules]
