"""Closing windows: a batch is cut from each window that is due and that nothing holds back."""

from collections.abc import Iterable
from dataclasses import dataclass

from combee.shuffle import partition
from combee.shuffle.admission import Admission
from combee.shuffle.cutting import Cutter
from combee.shuffle.partition import ShuffleState
from combee.shuffle.rules import BatchRules


@dataclass(frozen=True, slots=True)
class Closer:
    """Closes windows: the rules say what may close, the admission what must wait, and the cutter cuts the batch."""

    rules: BatchRules
    admission: Admission
    cutter: Cutter

    async def close_full(self, state: ShuffleState, line: str) -> None:
        """Close a window that holds a whole batch; ``close_due`` handles all other reasons to close."""
        window = state.windows.get(line)
        if window is not None and len(window.waiting) >= self.rules.batch_size(state, line):
            await self._close_window(state, line)

    async def close_due(self, state: ShuffleState) -> list[str]:
        """Cut batches from every window that is due; return the lines that were checked."""
        lines = self.rules.lines_to_look_at(state)
        for line in lines:
            await self._close_window(state, line)
        return lines

    async def _close_window(self, state: ShuffleState, line: str) -> None:
        """Cut batches from a window until it is not due any more or must wait."""
        while (window := state.windows.get(line)) is not None:
            close = self.rules.close(state, line, window)
            if close is None:
                state.remind(line)
                return
            if self.admission.is_busy(state, line):
                return  # the line's next version makes it change
            # Asked last: the admission logs each batch that it holds back.
            if self.admission.hold_back(state, line):
                state.blocked.add(line)
                return
            await self.cutter.close(state, line, close)

    def to_read_again(self, state: ShuffleState, lines: Iterable[str]) -> dict[str, list[int]]:
        """Remove from windows the offsets of reflections that now fit into memory, and return them by line.

        They belong to windows with less than a batch in memory.
        """
        offsets: dict[str, list[int]] = {}
        for line in lines:
            window = state.windows.get(line)
            if window is None or not (window.overflow or window.over_share):
                continue
            size = self.rules.batch_size(state, line)
            lack = size - len(window.waiting)
            if lack > 0:
                offsets[line] = window.take_offsets(max(size, partition.WINDOW_KEPT), lack)
        return offsets
