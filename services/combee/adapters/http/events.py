"""Server-sent events, read line by line (WHATWG HTML, section 9.2)."""

from collections.abc import AsyncIterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event."""

    kind: str
    data: str
    id: str | None
    """The id to resume from; None: the event has none."""


async def events(lines: AsyncIterator[str]) -> AsyncIterator[Event]:
    """Yield the events of a stream; comments, which keep it alive, are passed over."""
    kind, data, event_id = "message", list[str](), None
    async for line in lines:
        if not line:
            if data:
                yield Event(kind=kind, data="\n".join(data), id=event_id)
            kind, data, event_id = "message", [], None
            continue
        name, _, value = line.partition(":")
        match name:
            case "event":
                kind = value.removeprefix(" ")
            case "data":
                data.append(value.removeprefix(" "))
            case "id":
                event_id = value.removeprefix(" ")
