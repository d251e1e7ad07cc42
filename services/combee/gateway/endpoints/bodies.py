"""Bodies of commands, as the OpenAPI document describes them."""

from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field

from combee.core.formats.files import Format
from combee.gateway.values import LabelName, whole
from combee_schemas.base import BranchName, Id, Value
from combee_schemas.gate import MAX_REJECTED, Reason

MOST_TEXT = 800_000
Number = Annotated[int, Field(ge=1, le=2**31), BeforeValidator(whole)]
Beside = Annotated[int, Field(ge=0, le=2**31), BeforeValidator(whole)]
"""0: none."""

Own = Annotated[bool | int | str, BeforeValidator(whole)]


class Asked(Value):
    """What every command's body may have."""

    model_config = ConfigDict(extra="forbid", strict=True)

    command_id: Id | None = None
    """A repeat under the same id has no second effect; None: an id that names what is asked for."""


class Promote(Asked):
    """Let a label point at a version."""

    label: LabelName
    version: Number | None = None
    """None: the newest."""


class Judgement(Asked):
    """Approve or reject the candidate of a gated playbook."""

    version: Number | None = None
    """The candidate that was looked at; None: whichever it is."""
    production: Beside | None = None
    """The version that it was seen beside, 0 if there was none; None: whichever agents read."""
    reason: Reason = ""


class Rejection(Judgement):
    """Reject the candidate of a gated playbook, or a part of it; the rest goes on as the next candidate."""

    entry_ids: list[Id] = Field(default=[], max_length=MAX_REJECTED)
    """Entries to reject alone, which the candidate adds, changes or removes."""
    sources: list[str] = Field(default=[], max_length=MAX_REJECTED)
    """Sources to reject alone: what they taught since production is taken back."""


class Rollback(Asked):
    """Make a new version that says what an old one says."""

    version: Number


class NewBranch(Asked):
    """Fork a branch, which learns from the playbook's reflections in its own way."""

    branch: BranchName = Field(min_length=1)
    settings: dict[str, Own] = Field(default={}, max_length=50)
    """Such as ``{"batch_size": 10}``; what is not named it does as its playbook."""


class Adopt(Asked):
    """Make what a branch says its playbook's next version."""

    version: Number | None = None
    """Of the branch; None: the newest."""


class Edit(Asked):
    """Change entries; ``text`` is Markdown as ``format=md`` gives it, changed."""

    text: str = Field(max_length=MOST_TEXT)
    version: Number | None = None
    """The version that it was made of; None: the one in its title, else the newest."""


class Keep(Asked):
    """Stand behind entries; agents are shown those that are only proposed."""

    entry_ids: list[Id] = Field(min_length=1, max_length=1000)


class Import(Asked):
    """Replace the content, or start a playbook."""

    text: str = Field(max_length=MOST_TEXT)
    format: Format


class Revoke(Asked):
    """Take reflections back: what rests on them alone goes, entries say again what they said before."""

    reflection_ids: list[Id] = Field(default=[], max_length=1000)
    rules: list[str] = Field(default=[], max_length=100)
    """``source:NAME``, ``id:ID``, ``text:WORDS``, ``since:TIME``, ``until:TIME`` or ``between:TIME/TIME``."""

    @property
    def chosen(self) -> list[str]:
        """All of it as rules."""
        return [*(f"id:{reflection_id}" for reflection_id in self.reflection_ids), *self.rules]
