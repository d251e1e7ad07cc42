"""One partition's windows: filled from the log in order, closed one transaction at a time."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from combee.adapters.ports import Outgoing, PoisonError, Record, Transactor
from combee.core.batching.indexed_heap import IndexedHeap
from combee.core.batching.window import Share, Waiting, Window
from combee.shuffle.manifests import Manifests
from combee_schemas import topics
from combee_schemas.base import playbook_of
from combee_schemas.command import Command
from combee_schemas.plan import Branch

GROUP = "shuffle"
REFLECTIONS = topics.REFLECTIONS.name
COMMANDS = topics.COMMANDS.name
RECHECK_S = 1.0
"""Seconds between checks whether a blocked line may go on or a batch is overdue: no event says so."""
WINDOW_KEPT = 100
"""Reflections per playbook kept in memory, at least a whole batch; further ones wait as offsets."""
LETTERS_AT_ONCE = 500
"""Maximum number of dead letters in one transaction: a whole backlog would exceed its time-out."""
LETTER_BYTES = 4 << 20
"""Maximum bytes of dead letters in one transaction."""
EMPTY = Window()


@dataclass(slots=True, kw_only=True)
class ShuffleState:
    """The windows, flushes and manifests of one partition; all of it can be read back from the log."""

    number: int
    transactor: Transactor
    manifests: Manifests
    seen: dict[str, int]
    """Last offset worked in, per input topic."""
    committed: dict[str, int]
    memory_bytes: int
    windows: dict[str, Window] = field(default_factory=dict)
    flushes: dict[int, Command] = field(default_factory=dict)
    """Flush commands that are not fulfilled yet, by offset."""
    orders: dict[int, Command] = field(default_factory=dict)
    """Commands to consolidate or to branch that have no batch yet, by offset."""
    grown: set[str] = field(default_factory=set)
    """Playbooks with a new version: each may have grown enough to be consolidated by itself."""
    to_ask_again: set[str] = field(default_factory=set)
    """Lines with a new version that may have reflections to be asked about again."""
    branches: dict[str, Branch] = field(default_factory=dict)
    """The branches that learn, by line."""
    ended: set[str] = field(default_factory=set)
    """Lines that were deleted: a branch among them learns no more."""
    logged_flushes: set[int] = field(default_factory=set)
    """Offsets of flushes that were logged as waiting for a paused playbook."""
    outbox: list[Outgoing] = field(default_factory=list)
    """Dead letters that go out with the next transaction."""
    outbox_bytes: int = 0
    body_bytes: int = 0
    rechecked_at: float = 0.0
    """Monotonic seconds of the last check of blocked lines and overdue batches."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    changed: set[str] = field(default_factory=set)
    """Lines with a change after which their window may be due."""
    blocked: set[str] = field(default_factory=set)
    """Lines with a due batch that ``Admission`` holds back: no event says when it may go."""
    _oldest: IndexedHeap[str, int] = field(default_factory=IndexedHeap)
    """By line, the offset of the first reflection that waits."""
    _due_by_offset: IndexedHeap[str, int] = field(default_factory=IndexedHeap)
    """The same, until the log has gone too far beyond it."""
    _due_by_time: IndexedHeap[str, float] = field(default_factory=IndexedHeap)
    """By line, when that reflection was seen, in monotonic seconds, until it has waited too long."""
    _waiting: set[tuple[str, str]] = field(default_factory=set)

    def bury(self, letter: Outgoing) -> None:
        """Add a dead letter to the next transaction."""
        self.outbox.append(letter)
        self.outbox_bytes += len(letter.value or b"")

    @property
    def is_outbox_full(self) -> bool:
        """Whether the outbox has reached the maximum for one transaction."""
        return len(self.outbox) >= LETTERS_AT_ONCE or self.outbox_bytes >= LETTER_BYTES

    def written(self) -> None:
        """Record that the outbox and the offsets have been committed."""
        self.outbox.clear()
        self.outbox_bytes = 0
        self.committed = self.low()

    def window(self, playbook: str) -> Window:
        """Return a playbook's window."""
        return self.windows.setdefault(playbook, Window())

    def recheck(self, now: float) -> float:
        """Return the seconds since the last check if the next check, which includes blocked lines, is due; else 0."""
        passed = now - self.rechecked_at
        if passed < RECHECK_S:
            return 0.0
        self.rechecked_at = now
        self.changed |= self.blocked
        self.blocked.clear()
        return passed

    def note(self, line: str) -> None:
        """Record that a line's window has changed."""
        self.changed.add(line)
        self._oldest.set(line, self.windows.get(line, EMPTY).oldest)
        self.remind(line)

    def remind(self, line: str) -> None:
        """Schedule a check of a line for when its first reflection is old."""
        window = self.windows.get(line, EMPTY)
        self._due_by_offset.set(line, window.oldest)
        self._due_by_time.set(line, window.waiting[0].seen_at if window.waiting else None)

    def take_changed(self, *, seen_by: float, before: int) -> list[str]:
        """Return the lines to check, the oldest first: changed ones, and those whose first reflection is old.

        A reflection is old if it was seen by that time, or stands at or before that offset. A caller that finds
        a line not due calls ``remind`` again.
        """
        self.changed.update(self._due_by_time.take_through(seen_by), self._due_by_offset.take_through(before))
        changed, self.changed = self.changed & self.windows.keys(), set()
        return sorted(changed, key=lambda line: (self.windows[line].oldest or 0, line))

    @property
    def waiting_since(self) -> float | None:
        """Monotonic seconds at which the oldest scheduled reflection was seen."""
        return self._due_by_time.smallest()

    def lines(self, playbook: str) -> list[str]:
        """Return the lines that learn from a playbook's reflections: the playbook and its branches."""
        return [playbook, *(line for line, branch in self.branches.items() if branch.of == playbook)]

    def fork(self, line: str, branch: Branch) -> None:
        """Begin a branch: reflections that wait for its playbook's next batches also wait for the branch's."""
        self.branches[line] = branch
        waits = self.window(branch.of)
        over_share = {source: offsets[:] for source, offsets in waits.over_share.items()}
        window = self.windows[line] = Window(overflow=waits.overflow[:], over_share=over_share)
        for item in waits.waiting:
            self._add(line, window, item)
        self.note(line)

    def is_forking(self, line: str) -> bool:
        """Return whether a requested fork of the line, or its own fork, holds back its next batch."""
        asked = (order for order in self.orders.values() if order.kind == "branch")
        return line in self.manifests.forks() or any(line in {order.playbook, order.line} for order in asked)

    def end_branches(self) -> None:
        """Drop the windows of deleted branches."""
        for line in self.ended and self.ended & self.branches.keys() - self.manifests.forks().keys():
            del self.branches[line]
            self.release(line, self.windows.pop(line, EMPTY).waiting)
        self.ended.clear()

    def wait(
        self,
        line: str,
        item: Waiting,
        *,
        batch_size: int,
        share: Share | None = None,
        is_reread: bool = False,
    ) -> None:
        """Put a reflection into a line's window, or count it as a repeat; a full window keeps its offset only.

        ``is_reread``: its offset was kept before, and now there is room. With a ``share``, reflections beyond their
        source's share are held over.
        """
        member = item.member
        if self.manifests.covers(line, member.offset):
            return
        window = self.window(line)
        if not is_reread and (window.overflow or len(window.waiting) >= max(WINDOW_KEPT, batch_size)):
            window.overflow.append(member.offset)
            if len(window) == 1:
                self.note(line)
            return
        if self._is_repeat(line, member.reflection_id, member.attempt):
            window.add_repeat(member)
            return
        self._add(line, window, item)
        if share is not None:
            self._let_go(line, window.hold_over(share))
        if len(window.waiting) == 1:
            self.note(line)
        else:
            self.changed.add(line)

    def _add(self, line: str, window: Window, item: Waiting) -> None:
        """Put a reflection into a window, without its body if memory is full."""
        keep = item.body is not None and self.body_bytes + item.size <= self.memory_bytes
        self.body_bytes += item.size if keep else 0
        window.add(item if keep else replace(item, body=None))
        self._waiting.add((line, item.member.reflection_id))

    def _is_repeat(self, line: str, reflection_id: str, attempt: int) -> bool:
        branch = self.branches.get(line)
        # Without the attempt: a waiting reflection makes any other of its id a repeat, even of a lower attempt.
        return (
            (line, reflection_id) in self._waiting
            or self.manifests.knows(line, reflection_id, attempt)
            or (branch is not None and self.manifests.began_with(branch, reflection_id, attempt))
        )

    def _let_go(self, line: str, taken: Sequence[Waiting]) -> None:
        """Free the memory of reflections that left a window."""
        self.body_bytes -= sum(item.size for item in taken if item.body is not None)
        self._waiting.difference_update([(line, item.member.reflection_id) for item in taken])

    def release(self, playbook: str, taken: Sequence[Waiting]) -> None:
        """Forget reflections that left their window."""
        self._let_go(playbook, taken)
        window = self.windows.get(playbook, EMPTY)
        if not len(window) and not window.dropped:
            self.windows.pop(playbook, None)
        self.note(playbook)

    def low(self) -> dict[str, int]:
        """Return the next offset to read after a crash, per input topic."""
        oldest = self._oldest.smallest()
        return {
            REFLECTIONS: self.seen[REFLECTIONS] + 1 if oldest is None else oldest,
            COMMANDS: min((*self.flushes, *self.orders), default=self.seen[COMMANDS] + 1),
        }

    def through(self, playbook: str) -> int:
        """Return the offset up to which every reflection of a playbook is in a batch once its window is cut."""
        oldest = self.window(playbook).oldest
        return self.seen[REFLECTIONS] if oldest is None else oldest - 1

    def order_batch(self, record: Record, command: Command) -> None:
        """Remember a command until it has its batch.

        Raises
        ------
        PoisonError
            If it asks for a branch that is impossible.
        """
        is_named = command.branch and playbook_of(command.playbook) == command.playbook
        if command.kind == "branch" and not is_named:
            raise PoisonError(f"{command.line} cannot be a branch of {command.playbook}")
        self.orders[record.offset] = command

    def settle_order(self, command: Command) -> None:
        """Forget a command that has its batch, all copies of it."""
        for offset, known in list(self.orders.items()):
            if (known.line, known.command_id) == (command.line, command.command_id):
                del self.orders[offset]

    def settle_flushes(self) -> None:
        """Mark windows for flushing; forget fulfilled flushes.

        A flush whose reflections have not all been read waits: batches are cut from all of them, not from a part.
        """
        for offset, command in list(self.flushes.items()):
            if self.seen[REFLECTIONS] < command.through_offset:
                continue
            window = self.windows.get(command.playbook, Window())
            if window.flush_through < command.through_offset:
                window.flush_through = command.through_offset
                self.changed.add(command.playbook)
            window.left_out = command.left_out
            if window.oldest is None or window.oldest > command.through_offset:
                del self.flushes[offset]
                self.logged_flushes.discard(offset)
