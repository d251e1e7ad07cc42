"""A deployment in memory for tests of the SDK; its broker can be away, or never answer."""

import time
from collections.abc import Callable, Sequence

from combee.adapters.ports import PoisonError, TransientError
from combee.sdk import MemoryTransport, Reflection
from combee.sdk.transport import Contexts
from combee_schemas.playbook import Playbook
from combee_schemas.topics import Published

NAME = "support/refunds"
DEADLINE_S = 5.0


class UnreliableTransport(MemoryTransport):
    """A deployment whose broker can be away."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.attempts = 0
        self.fetches = 0

    async def send(self, messages: Sequence[Published], contexts: Contexts = ()) -> None:
        self.attempts += 1
        if self.away:
            raise TransientError("the broker is away")
        if any(isinstance(message, Reflection) and message.key_insight == "poison" for message in messages):
            raise PoisonError("too large")
        await super().send(messages, contexts)

    async def fetch(self, name: str, version: int) -> Playbook | None:
        self.fetches += 1
        return await super().fetch(name, version)


class SilentTransport(MemoryTransport):
    """A deployment that never answers."""

    async def follow(self, sink: object) -> None:  # noqa: ARG002 - nothing is heard
        raise TransientError("nobody answers")


def until(condition: Callable[[], bool]) -> None:
    """Wait, without an event loop, until a condition holds."""
    ends = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < ends, "the condition did not come true in time"
        time.sleep(0.002)


def reflection(number: int, insight: str = "") -> Reflection:
    return Reflection(reflection_id=f"r-{number}", playbook=NAME, key_insight=insight or f"lesson {number}")
