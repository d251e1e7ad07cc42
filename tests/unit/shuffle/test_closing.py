"""Closing a window: the rules say what may close, the admission what must wait, and the cutter cuts."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

from combee.core.batching.window import Close, Waiting, Window
from combee.shuffle.cutting import Closer
from combee.shuffle.manifests import Manifests
from combee.shuffle.partition import ShuffleState
from combee_schemas.batch import Member

LINE = "support/refunds"


async def closed(*, busy: bool = False, held_back: bool = False) -> tuple[list[int], set[str]]:
    """Return the offsets of the batches cut of three reflections, two a batch, and the lines held back."""
    members = [Member(offset=at, reflection_id=f"r-{at}") for at in range(3)]
    waiting = [Waiting(member=member, size=1, seen_at=0, body=None) for member in members]
    state: Any = ShuffleState(
        number=0,
        transactor=AsyncMock(),
        manifests=Manifests(horizon=1),
        seen={},
        committed={},
        memory_bytes=0,
        windows={LINE: Window(waiting=waiting)},
    )

    def close(_state: object, _line: str, window: Window) -> Close | None:
        return Close(count=2, reason="size") if len(window.waiting) > 1 else None

    rules: Any = SimpleNamespace(lines_to_look_at=lambda _state: [LINE], close=close)
    admission: Any = SimpleNamespace(is_busy=lambda *_: busy, hold_back=lambda *_: held_back)
    cut = list[int]()

    async def take(_state: object, _line: str, close: Close) -> None:
        cut.extend(item.member.offset for item in state.window(LINE).take(close.count)[0])

    assert await Closer(rules, admission, AsyncMock(close=take)).close_due(state) == [LINE]
    return cut, state.blocked


async def test_a_window_closes_as_often_as_it_is_due_and_may() -> None:
    assert await closed() == ([0, 1], set())


async def test_a_window_that_must_wait_is_looked_at_again_where_no_version_tells_of_it() -> None:
    assert await closed(held_back=True) == ([], {LINE})
    assert await closed(busy=True, held_back=True) == ([], set())
