"""Server-sent events, read line by line (WHATWG HTML, section 9.2)."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from combee.adapters.ports import TransientError

MAX_EVENT = 16 * 1024 * 1024
"""Maximum characters of an event: several times what the largest playbook needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event."""

    kind: str
    data: str
    id: str | None
    """The id to resume from; None: the event has none."""


async def events(text: AsyncIterator[str]) -> AsyncIterator[Event]:
    """Yield the events of a stream; comments, which keep it alive, are passed over.

    Raises
    ------
    TransientError
        If an event is larger than any of a gateway.
    """
    kind, data, event_id, size = "message", list[str](), None, 0
    async for line in _lines(text):
        size += len(line)
        if size > MAX_EVENT:
            raise _too_large()
        if not line:
            if data:
                yield Event(kind=kind, data="\n".join(data), id=event_id)
            kind, data, event_id, size = "message", [], None, 0
            continue
        name, _, value = line.partition(":")
        match name:
            case "event":
                kind = value.removeprefix(" ")
            case "data":
                data.append(value.removeprefix(" "))
            case "id":
                event_id = value.removeprefix(" ")


async def _lines(text: AsyncIterator[str]) -> AsyncIterator[str]:
    """Yield lines, which only CR LF or LF ends: Unicode's other line ends stand in the texts of others."""
    parts, size = list[str](), 0
    async for chunk in text:
        first, *others = chunk.split("\n")
        parts.append(first)
        size += len(first)
        if size > MAX_EVENT:
            raise _too_large()
        for start in others:
            yield "".join(parts).removesuffix("\r")
            parts, size = [start], len(start)


def _too_large() -> TransientError:
    return TransientError(f"the gateway sends an event of more than {MAX_EVENT} characters")
