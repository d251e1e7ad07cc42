"""The state of one partition: its windows, the commands that wait for a batch, and its batches.

It changes in three ways: a record is processed (``wait``, ``order_batch``), reflections are taken for a batch
(``take``), and a batch that was written is remembered (``Manifests.add``). All of it can be read back from the log.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from combee.adapters.ports import Outgoing, PoisonError, Record, Transactor
from combee.core.batching.limits import SPAN
from combee.core.batching.window import Agenda, Close, Share, Taken, Waiting, Window
from combee_schemas import topics
from combee_schemas.base import playbook_of
from combee_schemas.batch import Batch
from combee_schemas.command import Command
from combee_schemas.plan import Branch

GROUP = "shuffle"
REFLECTIONS = topics.REFLECTIONS.name
COMMANDS = topics.COMMANDS.name
RECHECK_S = 1.0
"""Seconds between checks whether a blocked line may go on or a batch is overdue: no event says so."""
WINDOW_KEPT = 100
"""Reflections per playbook kept in memory, at least two batches; further ones wait as offsets."""
LETTERS_AT_ONCE = 500
"""Maximum number of dead letters in one transaction: a whole backlog would exceed its time-out."""
LETTER_BYTES = 4 << 20
"""Maximum bytes of dead letters in one transaction."""
EMPTY = Window()


@dataclass(slots=True, kw_only=True)
class InFlight:
    """A batch without a version yet."""

    batch: Batch
    offset: int
    since: float
    """Monotonic seconds of its (last) emission."""
    emissions: int = 1
    answered_s: float = 0.0
    """Seconds since then during which the model answered calls."""


@dataclass(slots=True, kw_only=True)
class Manifests:
    """The manifests of one partition, as far back as the duplicate horizon."""

    horizon: int
    sequences: dict[str, int] = field(default_factory=dict)
    through: dict[str, int] = field(default_factory=dict)
    batched_ahead: dict[str, set[int]] = field(default_factory=dict)
    """By line, the offsets of batched reflections beyond ``through``. An earlier reflection still waits, because its
    source had filled its share of the batch."""
    _ahead_since: dict[str, int] = field(default_factory=dict)
    """By line, the offset of the first manifest with such a reflection."""
    in_flight: dict[str, dict[int, InFlight]] = field(default_factory=dict)
    executed: set[tuple[str, str]] = field(default_factory=set)
    """(playbook, id) of commands that made a batch."""
    _ids: dict[tuple[str, str, int], tuple[int, int]] = field(default_factory=dict)
    """(line, reflection id, attempt) → offset and sequence of its manifest, oldest first."""

    def add(self, batch: Batch, offset: int, now: float) -> None:
        """Add a manifest."""
        name = batch.plan.playbook
        if batch.plan.branch is not None:
            self._begin(name)
        self.sequences[name] = max(self.sequences.get(name, 0), batch.plan.sequence)
        self.through[name] = max(self.through.get(name, -1), batch.plan.through_offset)
        self._note_ahead(batch, offset)
        self.in_flight.setdefault(name, {})[batch.plan.sequence] = InFlight(
            batch=batch, offset=offset, since=now
        )
        if batch.plan.command_id:
            self.executed.add((name, batch.plan.command_id))
        place = offset, batch.plan.sequence  # one shared object: a horizon has some 100,000 entries
        for member in batch.members:
            self._ids[name, member.reflection_id, member.attempt] = place
        self._forget(offset - self.horizon)

    def _begin(self, line: str) -> None:
        """Forget what a deleted branch of the same name has read: its playbook's next batches need not have it."""
        for known in (self.through, self.batched_ahead, self._ahead_since):
            known.pop(line, None)
        self._ids = {key: place for key, place in self._ids.items() if key[0] != line}

    def _note_ahead(self, batch: Batch, offset: int) -> None:
        name, through = batch.plan.playbook, self.through[batch.plan.playbook]
        # A branch begins with the reflections already batched for its playbook.
        of = batch.plan.branch.of if batch.plan.branch else name
        known, since = self.batched_ahead.get(of, set()), self._ahead_since.get(of, offset)
        if not known and all(member.offset <= through for member in batch.members):
            return
        offsets = known.union(member.offset for member in batch.members)
        self.batched_ahead[name] = {at for at in offsets if at > through}
        if self.batched_ahead[name]:
            self._ahead_since[name] = since
        else:
            del self.batched_ahead[name]
            self._ahead_since.pop(name, None)

    def _forget(self, before: int) -> None:
        while self._ids:
            key = next(iter(self._ids))
            if self._ids[key][0] >= before:
                return
            del self._ids[key]

    def published(self, playbook: str, sequence: int) -> None:
        """Batches up to ``sequence`` have their version."""
        in_flight = self.in_flight.get(playbook, {})
        for done in [number for number in in_flight if number <= sequence]:
            del in_flight[done]
        self.sequences[playbook] = max(self.sequences.get(playbook, 0), sequence)

    def covers(self, playbook: str, offset: int) -> bool:
        """Return whether a manifest already covers this record, which is being read again."""
        return offset <= self.through.get(playbook, -1) or offset in self.batched_ahead.get(playbook, ())

    def knows(self, playbook: str, reflection_id: str, attempt: int) -> bool:
        """Return whether this attempt of a reflection is in a batch already."""
        return (playbook, reflection_id, attempt) in self._ids

    def began_with(self, branch: Branch, reflection_id: str, attempt: int) -> bool:
        """Return whether a branch's playbook had this attempt of a reflection in a batch before the fork."""
        known = self._ids.get((branch.of, reflection_id, attempt))
        return known is not None and known[1] <= branch.sequence

    def forks(self) -> dict[str, Branch]:
        """Return the branches that have no version yet, by line."""
        plans = (in_flight.batch.plan for in_flight in self.all_in_flight())
        return {plan.playbook: plan.branch for plan in plans if plan.branch is not None}

    def next_sequence(self, playbook: str) -> int:
        """Return the sequence of a playbook's next batch."""
        return self.sequences.get(playbook, 0) + 1

    def count_in_flight(self, playbook: str) -> int:
        """Return how many batches of a playbook have no version yet."""
        return len(self.in_flight.get(playbook, ()))

    def all_in_flight(self) -> list[InFlight]:
        """Return the batches without a version, of all playbooks."""
        return [batch for batches in self.in_flight.values() for batch in batches.values()]

    def is_in_flight(self, batch: InFlight) -> bool:
        """Return whether a batch has no version still."""
        plan = batch.batch.plan
        return self.in_flight.get(plan.playbook, {}).get(plan.sequence) is batch

    @property
    def oldest_unpublished(self) -> int:
        """The offset of the oldest batch in flight; −1 if there is none."""
        offsets = [batch.offset for batch in self.all_in_flight()]
        return min(offsets, default=-1)

    @property
    def oldest_beyond(self) -> int:
        """The offset of the first manifest beyond a reflection that still waits; −1 if there is none."""
        return min(self._ahead_since.values(), default=-1)


@dataclass(slots=True, kw_only=True)
class ShuffleState:
    """One partition: its windows, the commands that wait for their batches, and its manifests."""

    number: int
    transactor: Transactor
    manifests: Manifests
    seen: dict[str, int]
    """Last offset worked in, per input topic."""
    committed: dict[str, int]
    memory_bytes: int
    windows: dict[str, Window] = field(default_factory=dict)
    agenda: Agenda = field(default_factory=Agenda)
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
    body_bytes: int = 0
    rechecked_at: float = 0.0
    """Monotonic seconds of the last check of blocked lines and overdue batches."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _waiting: set[tuple[str, str]] = field(default_factory=set)
    """(line, reflection id) of what waits in memory."""

    # ---- a reflection waits

    def lines(self, playbook: str) -> list[str]:
        """Return the lines that learn from a playbook's reflections: the playbook and its branches."""
        return [playbook, *(line for line, branch in self.branches.items() if branch.of == playbook)]

    def wait(self, line: str, item: Waiting, *, batch_size: int, is_reread: bool = False) -> bool:
        """Put a reflection into a line's window, or count it as a repeat; return whether the window is full now.

        A full window keeps only its offset. ``is_reread``: only its offset was kept, and now there is room.
        """
        member = item.member
        if self.manifests.covers(line, member.offset):
            return False
        window = self.window(line)
        most = max(WINDOW_KEPT, 2 * batch_size)  # all sources' shares together are less than two batches
        if not is_reread and (window.overflow or len(window.waiting) >= most):
            window.overflow.append(member.offset)
            if len(window) == 1:
                self.agenda.note(line, window)
            return False
        if self._is_repeat(line, member.reflection_id, member.attempt):
            window.add_repeat(member)
            return False
        self._add(line, window, item)
        if len(window.waiting) == 1:
            self.agenda.note(line, window)
        self.agenda.changed.add(line)
        return len(window.waiting) >= most

    def _is_repeat(self, line: str, reflection_id: str, attempt: int) -> bool:
        branch = self.branches.get(line)
        # While a reflection waits, every other with its id is a repeat, whichever attempt it is.
        return (
            (line, reflection_id) in self._waiting
            or self.manifests.knows(line, reflection_id, attempt)
            or (branch is not None and self.manifests.began_with(branch, reflection_id, attempt))
        )

    def _add(self, line: str, window: Window, item: Waiting) -> None:
        """Put a reflection into a window, without its body if memory is full."""
        keep = item.body is not None and self.body_bytes + item.memory <= self.memory_bytes
        self.body_bytes += item.memory if keep else 0
        self._waiting.add((line, item.member.reflection_id))
        window.add(item if keep else replace(item, body=None))

    def hold_over(self, line: str, share: Share) -> None:
        """Let reflections beyond their source's share wait for later batches."""
        self._let_go(line, self.windows[line].hold_over(share))

    def to_read_again(self, line: str, batch_size: int, share: Share | None) -> list[int]:
        """If a window has less than a batch in memory, remove and return the offsets that now fit into it."""
        window = self.windows.get(line, EMPTY)
        lack = batch_size - len(window.waiting)
        if lack <= 0 or not (window.overflow or window.over_share):
            return []
        return window.take_offsets(max(batch_size, WINDOW_KEPT), lack, share)

    def window(self, playbook: str) -> Window:
        """Return a playbook's window."""
        return self.windows.setdefault(playbook, Window())

    # ---- which lines to look at

    def recheck(self, now: float) -> float:
        """Return the seconds since the last check if the next check, which includes blocked lines, is due; else 0."""
        passed = now - self.rechecked_at
        if passed < RECHECK_S:
            return 0.0
        self.rechecked_at = now
        self.agenda.look_again()
        return passed

    def take_changed(self, seen_by: float) -> list[str]:
        """Return the lines whose windows to look at, the oldest first; see ``Agenda.take``."""
        lines = self.agenda.take(seen_by=seen_by, before=self.seen[REFLECTIONS] - SPAN) & self.windows.keys()
        return sorted(lines, key=lambda line: (self.windows[line].oldest or 0, line))

    # ---- a batch takes reflections

    def take(self, line: str, close: Close) -> Taken:
        """Remove the reflections of the next batch from a window.

        The caller does this before it writes the batch: the batch's transaction commits offsets beyond them.
        """
        taken = self.window(line).take(close)
        self._release(line, taken.items)
        return taken

    def _release(self, line: str, taken: Sequence[Waiting]) -> None:
        """Forget reflections that left their window."""
        self._let_go(line, taken)
        window = self.windows.get(line, EMPTY)
        if not len(window) and not window.dropped:
            self.windows.pop(line, None)
        self.agenda.note(line, window)

    def _let_go(self, line: str, taken: Sequence[Waiting]) -> None:
        """Free the memory of reflections that left a window."""
        self.body_bytes -= sum(item.memory for item in taken)
        self._waiting.difference_update([(line, item.member.reflection_id) for item in taken])

    def through(self, playbook: str) -> int:
        """Return the offset up to which no reflection of a playbook waits."""
        oldest = self.windows.get(playbook, EMPTY).oldest
        return self.seen[REFLECTIONS] if oldest is None else oldest - 1

    # ---- what is committed

    def low(self) -> dict[str, int]:
        """Return the next offset to read after a crash, per input topic."""
        oldest = self.agenda.oldest
        return {
            REFLECTIONS: self.seen[REFLECTIONS] + 1 if oldest is None else oldest,
            COMMANDS: min((*self.flushes, *self.orders), default=self.seen[COMMANDS] + 1),
        }

    @property
    def is_committed(self) -> bool:
        """Whether there is nothing to commit and no dead letter to write."""
        return not self.outbox and self.low() == self.committed

    @property
    def is_outbox_full(self) -> bool:
        """Whether the outbox has reached the maximum for one transaction."""
        letters = self.outbox
        return len(letters) >= LETTERS_AT_ONCE or sum(len(o.value or b"") for o in letters) >= LETTER_BYTES

    def written(self) -> None:
        """Record that the outbox and the offsets have been committed."""
        self.outbox.clear()
        self.committed = self.low()

    # ---- branches

    def fork(self, line: str, branch: Branch) -> None:
        """Begin a branch: reflections that wait for its playbook's next batches also wait for the branch's."""
        self.branches[line] = branch
        waits = self.window(branch.of)
        over_share = {source: offsets[:] for source, offsets in waits.over_share.items()}
        window = self.windows[line] = Window(overflow=waits.overflow[:], over_share=over_share)
        for item in waits.waiting:
            self._add(line, window, item)
        self.agenda.note(line, window)

    def is_forking(self, line: str) -> bool:
        """Return whether a requested fork of the line, or its own fork, holds back its next batch."""
        asked = (order for order in self.orders.values() if order.kind == "branch")
        return line in self.manifests.forks() or any(line in {order.playbook, order.line} for order in asked)

    def end_branches(self) -> None:
        """Drop the windows of deleted branches."""
        for line in self.ended and self.ended & self.branches.keys() - self.manifests.forks().keys():
            del self.branches[line]
            self._release(line, self.windows.pop(line, EMPTY).waiting)
        self.ended.clear()

    # ---- commands

    @property
    def has_orders(self) -> bool:
        """Whether a command or a version may want a batch that no window makes."""
        return bool(self.orders or self.to_ask_again or self.grown)

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
        """Forget a command that has its batch, and all copies of the command."""
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
                self.agenda.changed.add(command.playbook)
            window.left_out = command.left_out
            if window.oldest is None or window.oldest > command.through_offset:
                del self.flushes[offset]
                self.logged_flushes.discard(offset)
