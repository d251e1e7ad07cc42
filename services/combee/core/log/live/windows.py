"""Open windows and rates, computed from offsets."""

from collections import OrderedDict, deque
from collections.abc import Iterable

from combee_schemas.base import playbook_of

MAX_AHEAD = 10_000
"""Maximum number of unread offsets known per playbook; more means that the broker is away."""


Times = OrderedDict[int, int]
"""Offset → time; a plain dictionary is slow to find its first key after many removals."""


class Windows:
    """Reflections per line that wait for a batch, from keys and offsets alone."""

    def __init__(self) -> None:
        self._branches: dict[str, set[str]] = {}
        """Open branches by playbook."""
        self._ended: dict[str, int] = {}
        """Per former branch, its last batch."""
        self._waiting: dict[str, Times] = {}
        self._ahead: dict[str, Times] = {}
        """Reflections known to be in the log before they are read there."""
        self._through: dict[str, int] = {}
        self._beyond: dict[str, frozenset[int]] = {}
        """Per line, batched offsets beyond ``_through``, where an earlier reflection still waits."""

    def forked(self, line: str, sequence: int, through_offset: int) -> None:
        """Add a branch as of a batch: from now on its playbook's reflections also wait for it."""
        branches = self._branches.setdefault(playbook_of(line), set())
        if line in branches or sequence <= self._ended.get(line, -1):
            return
        branches.add(line)
        self._waiting[line] = self._waiting.get(playbook_of(line), Times()).copy()
        self._ahead[line] = self._ahead.get(playbook_of(line), Times()).copy()
        self.closed(line, through_offset)

    def ended(self, line: str, sequence: int) -> None:
        """Note that a line is no longer a branch, as of a batch."""
        self._ended[line] = max(sequence, self._ended.get(line, -1))
        self._branches.get(playbook_of(line), set()).discard(line)
        self.let_go(line)

    def let_go(self, line: str) -> None:
        """Drop a line's waiting reflections."""
        self._waiting.pop(line, None)
        self._ahead.pop(line, None)

    def _lines(self, playbook: str) -> tuple[str, ...]:
        return playbook, *self._branches.get(playbook, ())

    def acknowledged(self, playbook: str, offset: int, at_ms: int) -> None:
        """Add a reflection that was just written; it is read from the log later, or has been already."""
        for line in self._lines(playbook):
            waiting = self._waiting.get(line)
            read = next(reversed(waiting)) if waiting else -1
            ahead = self._ahead.setdefault(line, Times())
            if offset > max(read, self._through.get(line, -1)) and len(ahead) < MAX_AHEAD:
                ahead[offset] = at_ms

    def arrived(self, playbook: str, offset: int, at_ms: int) -> None:
        """Add a reflection, in offset order per playbook."""
        for line in self._lines(playbook):
            self._forget_ahead(line, offset)
            if offset > self._through.get(line, -1) and offset not in self._beyond.get(line, ()):
                self._waiting.setdefault(line, Times())[offset] = at_ms

    def dead_lettered(self, playbook: str, offset: int) -> None:
        """Note that a reflection became a dead letter before it was in a batch."""
        for line in self._lines(playbook):
            for known in (self._ahead, self._waiting):
                known.get(line, Times()).pop(offset, None)

    def closed(self, playbook: str, through_offset: int, members: Iterable[int] = ()) -> None:
        """Add a manifest: all offsets up to ``through_offset``, and its members, are batched."""
        through = self._through[playbook] = max(through_offset, self._through.get(playbook, -1))
        self._forget_ahead(playbook, through)
        waiting = self._waiting.get(playbook, Times())
        while waiting and next(iter(waiting)) <= through:
            waiting.popitem(last=False)
        known = self._beyond.pop(playbook, frozenset()).union(members)
        if beyond := frozenset(offset for offset in known if offset > through):
            self._beyond[playbook] = beyond
            for offset in beyond:
                waiting.pop(offset, None)

    def forget(self) -> None:
        """Drop waiting reflections; the batched offsets stay known."""
        self._waiting.clear()
        self._ahead.clear()

    def _forget_ahead(self, playbook: str, through: int) -> None:
        ahead = self._ahead.get(playbook, Times())
        while ahead and next(iter(ahead)) <= through:
            ahead.popitem(last=False)
        if not ahead:
            self._ahead.pop(playbook, None)

    def count(self, playbook: str) -> int:
        """Return the number of waiting reflections."""
        return len(self._waiting.get(playbook, ())) + len(self._ahead.get(playbook, ()))

    def since_ms(self, playbook: str) -> int | None:
        """Return when the oldest waiting reflection was written."""
        waiting = self._waiting.get(playbook)
        if waiting:
            return next(iter(waiting.values()))
        return min(self._ahead.get(playbook, Times()).values(), default=None)

    def newest(self, playbook: str) -> int:
        """Return the newest known offset of this playbook's reflections; −1: there are none."""
        waiting = self._waiting.get(playbook)
        read = next(reversed(waiting)) if waiting else self._through.get(playbook, -1)
        return max(self._ahead.get(playbook, ()), default=read)


SPAN_MS = 10_000


class Rate:
    """Counts over the last 10 s."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque()

    def add(self, count: int, at_ms: int) -> None:
        """Add a count that only grows."""
        self._seen.append((at_ms, count))
        while len(self._seen) > 2 and self._seen[1][0] <= at_ms - SPAN_MS:  # noqa: PLR2004 - a rate has two ends
            self._seen.popleft()

    @property
    def per_s(self) -> float:
        """Growth per second between the oldest and the newest count; 0 with a single one."""
        if not self._seen:
            return 0.0
        (first_ms, first), (last_ms, last) = self._seen[0], self._seen[-1]
        return (last - first) * 1000 / (last_ms - first_ms) if last_ms > first_ms else 0.0
