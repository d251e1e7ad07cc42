"""The client that is used where none is named."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Final

from combee.ports import FatalError, PoisonError
from combee.sdk.client import Client
from combee.sdk.transport import Sent, Sink
from combee_schemas.playbook import Playbook

_lock: Final = threading.Lock()
_made: Final[list[Client]] = []


def default_client() -> Client:
    """Return the client that ``COMBEE_*`` describes, made at the first call; without an address it reaches nobody."""
    with _lock:
        if not _made:
            try:
                _made.append(Client())
            except FatalError as error:
                # Raising would break an agent where only its environment lacks a variable.
                why = str(error)
                _made.append(Client(transport=lambda: Nowhere(why), max_messages=100))
        return _made[0]


class Nowhere:
    """A transport without an address: what it is given waits, and the reason is logged."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def send(self, messages: Sequence[Sent]) -> None:  # noqa: ARG002 - it sends nothing
        raise PoisonError(self._why)

    async def follow(self, sink: Sink) -> None:
        sink.current(None)
        await asyncio.Event().wait()

    async def watch(self, name: str, label: str) -> None:
        """Do nothing: no playbook ever comes."""

    async def fetch(self, name: str, version: int) -> Playbook | None:  # noqa: ARG002 - it finds nothing
        return None

    async def close(self) -> None:
        """Do nothing: nothing is open."""
