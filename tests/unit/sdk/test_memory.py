"""The deployment in memory, written to from one thread and followed on another."""

import asyncio
import threading
from collections.abc import Callable

from combee.sdk import MemoryTransport
from combee.sdk.transport import Sink

DEADLINE_S = 5.0
OVERTAKING_S = 0.05


class Slow(list[Callable[[], None]]):
    """What is written before anybody follows; adding to it leaves time in which following could begin."""

    def __init__(self) -> None:
        super().__init__()
        self.adding = threading.Event()
        self._begun = threading.Event()

    def append(self, write: Callable[[], None]) -> None:
        self.adding.set()
        self._begun.wait(OVERTAKING_S)
        super().append(write)

    def __len__(self) -> int:
        self._begun.set()
        return super().__len__()


async def test_what_is_put_while_following_begins_is_heard() -> None:
    memory, early = MemoryTransport(), Slow()
    memory._before = early
    heard = asyncio.Event()
    sink = Sink(take=lambda _key, _found: heard.set(), current=lambda _name: None)

    putting = threading.Thread(target=memory.put_label, args=("support", "production", 1))
    putting.start()
    await asyncio.to_thread(early.adding.wait, DEADLINE_S)
    following = asyncio.create_task(memory.follow(sink))
    try:
        async with asyncio.timeout(DEADLINE_S):
            await heard.wait()
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        putting.join()
