"""Which dead letters a verb is about."""

from dataclasses import dataclass
from typing import Annotated

import typer

from combee.inspection.dead_letters import Found
from combee_schemas.dead_letter import LetterId, Resolution, letter_id

Service = Annotated[str | None, typer.Option(help="only those of this service, such as reflect")]
Reason = Annotated[str | None, typer.Option(help="only those whose reason contains this")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What a dead letter must be."""

    service: str | None = None
    reason: str | None = None
    resolved: bool = False
    """Whether those that were retried or dropped count too."""

    def match(self, found: Found, resolution: Resolution | None) -> bool:
        """Return whether a dead letter is meant."""
        if resolution is not None and not self.resolved:
            return False
        letter = found.letter
        if letter is None:
            return self.service is None and self.reason is None
        by_service = self.service in {None, letter.service}
        return by_service and (self.reason or "").casefold() in letter.reason.casefold()


def checked_id(text: str) -> LetterId:
    """Return a dead letter's id, or refuse it as wrong usage."""
    found = letter_id(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no dead letter's id; 'combee dlq list' shows them")
    return found
