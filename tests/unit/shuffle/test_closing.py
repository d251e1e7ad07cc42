"""Closing a window: it closes when it is due, unless it must wait."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

from combee.adapters.memory import MemoryLog
from combee.core.batching.window import Taken, Waiting, Window
from combee.process.settings.loading import load_settings
from combee.shuffle.partition import Manifests, ShuffleState
from combee.shuffle.shuffler import Shuffler
from combee_schemas.batch import Member
from support.clock import ManualClock

LINE = "support/refunds"


async def closed(*, busy: bool = False, held_back: bool = False) -> tuple[list[int], set[str]]:
    """Return the offsets of the batches cut of three reflections, two a batch, and the lines held back."""
    members = [Member(offset=at, reflection_id=f"r-{at}") for at in range(3)]
    waiting = [Waiting(member=member, size=1, seen_at=0, body=None) for member in members]
    state: Any = ShuffleState(
        number=0,
        transactor=AsyncMock(),
        manifests=Manifests(horizon=1),
        seen={"reflections": 2},
        committed={},
        memory_bytes=0,
        windows={LINE: Window(waiting=waiting)},
    )

    cut = list[int]()

    async def write(_state: object, _line: str, taken: Taken) -> None:
        cut.extend(item.member.offset for item in taken.items)

    clock = ManualClock()
    shuffler: Any = Shuffler(MemoryLog(clock), clock, load_settings().batch)
    waits_for = "version" if busy else "check" if held_back else None
    shuffler._rules = SimpleNamespace(
        batch_size=lambda *_: 2, share=lambda *_: None, waits_for=lambda *_: waits_for
    )
    shuffler._cutter = SimpleNamespace(cut=write)
    await shuffler._close(state, LINE)
    return cut, state.agenda.blocked


async def test_a_window_closes_as_often_as_it_is_due_and_may() -> None:
    assert await closed() == ([0, 1], set())


async def test_a_window_that_must_wait_is_looked_at_again_where_no_version_tells_of_it() -> None:
    assert await closed(held_back=True) == ([], {LINE})
    assert await closed(busy=True, held_back=True) == ([], set())
