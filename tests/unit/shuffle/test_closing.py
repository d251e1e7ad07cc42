"""Closing a window: the rules say what may close, the gates what must wait, and the cutter cuts."""

from types import SimpleNamespace
from typing import Any, cast

from combee.core.batching.window import Close, Waiting, Window
from combee.shuffle.closing import Closer
from combee.shuffle.cutting import Cutter
from combee.shuffle.gates import Gates
from combee.shuffle.manifests import Manifests
from combee.shuffle.partition import PartitionState
from combee.shuffle.rules import BatchRules
from combee_schemas.batch import Member

LINE = "support/refunds"


class Cut:
    """A cutter that takes note of the reflections of each batch."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    async def bodies(self, *_: object) -> dict[int, object]:
        return {}

    def planned(self, *_: object) -> None:
        return None

    async def cut(self, _state: PartitionState, _batch: None, _bodies: Any, taken: list[Waiting]) -> None:
        self.batches.append([item.member.offset for item in taken])


async def closed(*, busy: bool = False, held_back: bool = False) -> tuple[list[list[int]], set[str]]:
    """Return the batches cut of three reflections, two of which make a batch, and the lines held back."""
    items = [
        Waiting(member=Member(offset=at, reflection_id=f"r-{at}"), size=1, seen_at=0, body=None)
        for at in range(3)
    ]
    state = PartitionState(
        number=0,
        transactor=cast("Any", None),
        manifests=Manifests(horizon=1),
        seen={},
        committed={},
        memory_bytes=0,
        windows={LINE: Window(waiting=items)},
    )
    rules = SimpleNamespace(
        lines_to_look_at=lambda _state: [LINE],
        close=lambda _state, _line, window: (
            Close(count=2, reason="size") if len(window.waiting) >= 2 else None
        ),
    )
    gates = SimpleNamespace(is_busy=lambda *_: busy, hold_back=lambda *_: held_back)
    cutter = Cut()
    closer = Closer(cast("BatchRules", rules), cast("Gates", gates), cast("Cutter", cutter))
    assert await closer.close_due(state) == [LINE]
    return cutter.batches, state.held


async def test_a_window_closes_as_often_as_it_is_due_and_may() -> None:
    assert await closed() == ([[0, 1]], set())


async def test_a_window_that_must_wait_is_looked_at_again_where_no_version_tells_of_it() -> None:
    assert await closed(held_back=True) == ([], {LINE})
    assert await closed(busy=True, held_back=True) == ([], set())
