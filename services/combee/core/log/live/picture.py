"""The live picture of a deployment, folded from the records of all topics in any order."""

from collections import Counter, OrderedDict, deque
from collections.abc import Sequence

from combee.core.batching.tree import is_valid
from combee.core.log.live.batch_tree import BatchTree
from combee.core.log.live.playbooks import PlaybookSummaries
from combee.core.log.live.values import LiveBatch, LiveDeadLetter, Snapshot, Stage
from combee.core.log.live.windows import Rate, Windows
from combee.core.names.tenants import Tenants
from combee.core.playbook.spend import UNCAPPED, SpendPolicy
from combee_schemas.base import Message, playbook_of
from combee_schemas.batch import Batch
from combee_schemas.control import BatchSize
from combee_schemas.dead_letter import DeadLetter, Resolution
from combee_schemas.plan import Plan
from combee_schemas.playbook import Playbook
from combee_schemas.scan import Partial, Update
from combee_schemas.topics import MAX_LEVELS, REFLECTIONS

BATCHES_KEPT = 50
BATCHES_SHOWN = 20
PLAYBOOKS_SHOWN = 200
DEAD_LETTERS_KEPT = 100


class Picture:
    """Current activity of a deployment; memory is bounded but for one summary per playbook with a version."""

    def __init__(
        self, *, batch_size: int, spending: SpendPolicy = UNCAPPED, tenants: Tenants | None = None
    ) -> None:
        self.revision = 0
        """Rises with every change."""
        self.windows = Windows()
        self._playbooks = PlaybookSummaries(batch_size, spending, tenants or Tenants({}))
        self._stages: dict[str, Stage] = {}
        self._rates: dict[str, Rate] = {}
        self._batches: OrderedDict[str, BatchTree] = OrderedDict()
        self._dead: deque[LiveDeadLetter] = deque(maxlen=DEAD_LETTERS_KEPT)
        self._dead_count = 0
        self._unreadable: dict[str, str] = {}

    # ---- reading

    def arrived(self, playbook: str, offset: int, at_ms: int) -> None:
        """Add a reflection by its key and place alone."""
        self.windows.arrived(playbook, offset, at_ms)
        self._touch(playbook, at_ms)
        self.revision += 1

    def acknowledged(self, playbook: str, offset: int, at_ms: int) -> None:
        """Add a reflection that was just written, before it is read."""
        self.windows.acknowledged(playbook, offset, at_ms)
        self._touch(playbook, at_ms)
        self.revision += 1

    def take(self, message: Message, at_ms: int, place: str = "") -> None:
        """Add a message of any other topic; messages without news of the present are ignored.

        ``place`` is the partition and offset of a dead letter, as in its id.
        """
        match message:
            case Batch():
                self._manifest(message)
            case Partial() | Update():
                self._result(message, at_ms)
            case Playbook():
                self._version(message)
            case BatchSize():
                self._playbooks.size(message)
            case DeadLetter():
                self._dead.append(_shown(message, place))
                self._dead_count += 1
                if message.origin_topic == REFLECTIONS.name:
                    self.windows.dead_lettered(
                        (message.key or b"").decode(errors="replace"), message.origin_offset
                    )
            case Resolution():
                self._decided(message)
            case _:
                return
        self.revision += 1

    def past(self, version: Playbook) -> None:
        """Add a version from ``history``, which does not prove that the playbook still exists."""
        self._playbooks.past(version)
        if version.batch and (known := self._batches.get(version.batch.plan.batch_id)):
            known.become(version.version, version.created_at_ms)
        self.revision += 1

    def deleted(self, playbook: str) -> None:
        """Add a tombstone of ``playbooks``."""
        self._playbooks.forget(playbook)
        self.revision += 1

    def stage(
        self, name: str, offsets: int, at_ms: int, *, lag: int | None = None, oldest_ms: int | None = None
    ) -> None:
        """Add the progress of a topic and its readers."""
        rate = self._rates.setdefault(name, Rate())
        rate.add(offsets, at_ms)
        waited = None if oldest_ms is None else max(0, at_ms - oldest_ms) / 1000
        seen = Stage(name=name, offsets=offsets, rate_per_s=rate.per_s, lag=lag, lag_s=waited)
        if seen != self._stages.get(name):
            self._stages[name] = seen
            self.revision += 1

    def unreadable(self, name: str, reason: str) -> bool:
        """Note why something cannot be read; return whether that is news."""
        if self._unreadable.get(name) == reason:
            return False
        self._unreadable[name] = reason
        self.revision += 1
        return True

    def readable(self, name: str) -> None:
        """Note that something can be read (again)."""
        if self._unreadable.pop(name, None) is not None:
            self.revision += 1

    def forget(self) -> None:
        """Drop everything that can be read anew; offsets and playbooks stay."""
        self.windows.forget()
        self._batches.clear()
        self._dead.clear()
        self._dead_count = 0
        self.revision += 1

    # ---- showing

    def batch(self, batch_id: str) -> LiveBatch | None:
        """Return one of the last 50 batches."""
        known = self._batches.get(batch_id)
        return known.shown if known else None

    def batch_size(self, playbook: str) -> int:
        """Return at how many reflections a playbook's window closes."""
        return self._playbooks.batch_size(playbook)

    def in_flight(self, playbook: str) -> Sequence[LiveBatch]:
        """Return the playbook's batches without a version among the last 50, oldest first."""
        trees = [tree for tree in self._batches.values() if tree.batch.playbook == playbook]
        return [tree.shown for tree in trees if tree.batch.version is None]

    @property
    def dead_letters(self) -> Sequence[LiveDeadLetter]:
        """The last 100 dead letters, oldest first."""
        return tuple(self._dead)

    def snapshot(self, now_ms: int) -> Snapshot:
        """Return the current state: the newest 20 batches, the 200 lines that changed last."""
        newest = [batch.shown for batch in reversed(self._batches.values())][:BATCHES_SHOWN]
        in_flight = Counter(
            batch.batch.playbook for batch in self._batches.values() if batch.batch.version is None
        )
        return Snapshot(
            revision=self.revision,
            at_ms=now_ms,
            stages=tuple(self._stages.values()),
            playbooks=self._playbooks.shown(self.windows, in_flight, PLAYBOOKS_SHOWN, now_ms),
            playbooks_total=len(self._playbooks),
            batches=tuple(newest),
            dead_letters=self._dead_count,
            dead_letters_recent=tuple(reversed(self._dead)),
            unreadable=dict(self._unreadable),
        )

    # ---- internals

    def _decided(self, resolution: Resolution) -> None:
        """Note a decision about a dead letter; the first one holds."""
        for at, letter in enumerate(self._dead):
            if letter.id == str(resolution.letter) and not letter.decision:
                self._dead[at] = letter.model_copy(update={"decision": resolution.decision})
                self._dead_count -= 1

    def _touch(self, line: str, at_ms: int) -> None:
        let_go = self._playbooks.touch(line, at_ms)
        if let_go is not None:
            self.windows.let_go(let_go)

    def _manifest(self, manifest: Batch) -> None:
        plan = manifest.plan
        if plan.branch is not None:
            self.windows.forked(plan.playbook, plan.sequence, plan.through_offset)
        self.windows.closed(
            plan.playbook, plan.through_offset, (member.offset for member in manifest.members)
        )
        self._touch(manifest.plan.playbook, manifest.plan.closed_at_ms)
        if tree := self._tree(manifest.plan):
            tree.describe(manifest)

    def _result(self, result: Partial | Update, at_ms: int) -> None:
        if tree := self._tree(result.plan):
            tree.finish(result, at_ms)

    def _version(self, playbook: Playbook) -> None:
        if playbook.branch is not None:
            self.windows.forked(playbook.name, playbook.batch_sequence, playbook.through_offset)
        elif playbook_of(playbook.name) != playbook.name:
            self.windows.ended(playbook.name, playbook.batch_sequence)
        self.windows.closed(playbook.name, playbook.through_offset)
        self._playbooks.newest(playbook)
        self.past(playbook)

    def _tree(self, plan: Plan) -> BatchTree | None:
        tree = self._batches.get(plan.batch_id)
        if tree is None and is_valid(plan.widths, MAX_LEVELS):
            tree = self._batches[plan.batch_id] = BatchTree(plan)
            version = self._playbooks.became(plan.playbook, plan.batch_id)
            if version is not None:
                tree.become(version.version, version.at_ms)
            while len(self._batches) > BATCHES_KEPT:
                self._batches.popitem(last=False)
        return tree


def _shown(letter: DeadLetter, place: str) -> LiveDeadLetter:
    return LiveDeadLetter(
        id=place,
        service=letter.service,
        reason=letter.reason,
        origin=f"{letter.origin_topic}[{letter.origin_partition}]@{letter.origin_offset}",
        record_id=letter.record_id,
        playbook=letter.playbook,
        at_ms=letter.at_ms,
    )
