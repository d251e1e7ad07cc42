"""Closing windows: one is closed by cutting a batch of what waits in it."""

import math
from collections.abc import Iterable

from combee.core.batching.limits import SPAN
from combee.core.batching.window import Close, due
from combee.ports import Clock
from combee.shuffle import partition
from combee.shuffle.cutting import Cutter
from combee.shuffle.gates import Gates
from combee.shuffle.orders import Orders
from combee.shuffle.overdue import Overdue
from combee.shuffle.partition import REFLECTIONS, PartitionState
from combee.shuffle.rules import BatchRules

LOOK_S = 1.0
"""How often it is asked what nothing tells: whether a gate has opened, whether a batch is overdue."""


class Closer:
    """Closes the windows of partitions as ``core`` decides and gates allow."""

    def __init__(
        self, clock: Clock, rules: BatchRules, gates: Gates, cutter: Cutter, orders: Orders, overdue: Overdue
    ) -> None:
        self._clock = clock
        self._rules = rules
        self._gates = gates
        self._cutter = cutter
        self._orders = orders
        self._overdue = overdue

    async def close_full(self, state: PartitionState, line: str) -> None:
        """Close a window that has a whole batch; what else may close it can wait for ``close_due``."""
        window = state.windows.get(line)
        if window is not None and len(window.waiting) >= self._rules.batch_size(state, line):
            await self._close_window(state, line)

    async def close_due(self, state: PartitionState) -> list[str]:
        """Cut every batch that is due; emit again what is overdue; commit what only needs committing.

        Return the lines that were looked at: those that something has changed about.
        """
        passed = self._clock.monotonic() - state.looked_at
        if passed >= LOOK_S:
            state.looked_at += passed
            state.changed |= state.held
            state.held.clear()
            await self._overdue.look_after(state, passed)
        state.settle_flushes()
        state.end_branches()
        await self._orders.cut(state)
        lines = state.take_changed(
            seen_by=self._clock.monotonic() - self._rules.settings.max_wait_s,
            before=state.seen[REFLECTIONS] - SPAN,
        )
        for line in lines:
            await self._close_window(state, line)
        state.settle_flushes()
        self._gates.spend.log_waiting_flushes(state)
        await self._cutter.commit(state)
        return lines

    def due_in(self, state: PartitionState) -> float:
        """Return in how many seconds a window may be due by time alone."""
        since = state.waiting_since
        if since is None:
            return math.inf
        return max(0.0, since + self._rules.settings.max_wait_s - self._clock.monotonic())

    async def _close_window(self, state: PartitionState, line: str) -> None:
        """Close a window as often as it is due and may."""
        policy = self._rules.window_policy(state, line)
        while (window := state.windows.get(line)) is not None:
            newest, now = state.seen[REFLECTIONS], self._clock.monotonic()
            close = due(window, policy, now=now, newest_offset=newest)
            if close is None:
                state.remind(line)
                return
            if self._gates.is_busy(state, line):
                return  # the next version is news of this line
            # Asked last: a gate logs what it keeps waiting.
            if self._gates.hold_back(state, line):
                state.held.add(line)
                return
            await self._close(state, line, close)

    async def _close(self, state: PartitionState, line: str, close: Close) -> None:
        taken, dropped = state.window(line).take(close.count)
        bodies = await self._cutter.bodies(state, taken)
        batch = self._cutter.planned(state, line, close, taken, bodies, dropped)
        # First: the offsets written with the manifest say that these no longer wait.
        state.release(line, taken)
        await self._cutter.cut(state, batch, bodies, taken)

    def to_read_again(self, state: PartitionState, lines: Iterable[str]) -> dict[str, list[int]]:
        """Take the offsets out of windows that these have room for now, and return them by line.

        Those are of full windows with less than a batch in memory, and of sources with less than their share there.
        """
        again: dict[str, list[int]] = {}
        for line in lines:
            window = state.windows.get(line)
            if window is None or not (window.beyond or window.held):
                continue
            size, most = self._rules.batch_size(state, line), self._rules.most_of_one(state, line)
            is_short = window.beyond and len(window.waiting) < size
            if is_short or window.has_room(most):
                count = max(size, partition.WINDOW_KEPT) if is_short else 0
                again[line] = window.take_offsets(count, most)
        return again
