"""The account: every acknowledged reflection has exactly one fate, or it is lost."""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from combee.core.identity import derived_ids, fingerprint
from combee.core.ledger.batches import NOWHERE, Batches
from combee.core.ledger.dead_letters import DeadLetters, Fate, Key, Place
from combee.core.ledger.report import Findings, Horizon, LedgerReport
from combee.core.ledger.traces import Contents, Traces
from combee.core.ledger.updates import Updates
from combee.core.ledger.versions import Versions
from combee_schemas import topics
from combee_schemas.base import playbook_of
from combee_schemas.batch import Batch
from combee_schemas.command import Command
from combee_schemas.dead_letter import DeadLetter, Resolution
from combee_schemas.playbook import Playbook, label_key
from combee_schemas.scan import Update
from combee_schemas.trace import Trace

REFLECTIONS = topics.REFLECTIONS.name
TRACES = topics.TRACES.name
COMMANDS = topics.COMMANDS.name


class Ledger:
    """Feed the facts topic by topic, each partition in order; then ask for the report.

    The topics come in this order: ``playbooks``, ``dead-letters``, ``batches``, ``history``, ``updates``,
    ``reflections``, ``traces``, ``commands``. While the system runs, each must be read up to an end that was
    looked up after those of what it causes: committed offsets, history, updates, batches, dead letters,
    reflections, traces.

    ``beginnings`` are the first retained offsets by topic and partition, ``committed`` the offsets of group
    ``shuffle`` on ``reflections``, ``reflected`` those of group ``reflect`` on ``traces``, ``settled`` the ends of
    ``history`` before ``playbooks`` was read.
    """

    def __init__(
        self,
        *,
        beginnings: Mapping[str, Mapping[int, int]],
        committed: Mapping[int, int],
        reflected: Mapping[int, int] = MappingProxyType({}),
        settled: Mapping[int, int] | None = None,
    ) -> None:
        self._horizon = Horizon(first_retained=beginnings)
        self._settled = settled
        self._findings = Findings()
        self._dead_letters = DeadLetters(committed=committed)
        proof = None if self._cut(topics.DEAD_LETTERS.name) else self._dead_letters.proves
        self._batches = Batches(findings=self._findings, cut=self._cut(topics.BATCHES.name), proof=proof)
        self._versions = Versions(
            findings=self._findings, batches=self._batches, cut=self._cut(topics.HISTORY.name)
        )
        self._updates = Updates(findings=self._findings, batches=self._batches)
        self._fates: dict[str, dict[str, Fate]] = {}
        self._lost: dict[tuple[str, str], str] = {}
        self._conflicts = Findings()
        self._contents = Contents(topic=REFLECTIONS, conflicts=self._conflicts)
        self._commands = Contents(topic=COMMANDS, conflicts=self._conflicts)
        self._traces = Traces(
            findings=self._findings,
            contents=Contents(topic=TRACES, conflicts=self._conflicts),
            dead_letters=DeadLetters(committed=reflected),
        )
        self._unseen: dict[str, set[str]] = {}
        """Members that ``reflections`` must still hold and that have not been met there yet."""

    def _cut(self, topic: str) -> frozenset[int]:
        first_retained = self._horizon.first_retained.get(topic, {})
        return frozenset(partition for partition, first in first_retained.items() if first > 0)

    def snapshot(self, partition: int, offset: int, name: str, playbook: Playbook | None) -> None:
        """Take a record of ``playbooks``; None is a tombstone."""
        self._versions.snapshot(partition, offset, name, playbook)

    def dead_letter(self, letter: DeadLetter) -> None:
        """Take a dead letter; only those of ``reflections`` and ``traces`` matter here."""
        if letter.origin_topic == REFLECTIONS:
            self._dead_letters.take(letter)
        elif letter.origin_topic == TRACES:
            self._traces.dead_letters.take(letter)

    def resolution(self, resolution: Resolution) -> None:
        """Take what was decided about a dead letter."""
        if resolution.origin_topic == REFLECTIONS:
            self._dead_letters.resolve(resolution)
        elif resolution.origin_topic == TRACES:
            self._traces.dead_letters.resolve(resolution)

    def batch(self, partition: int, offset: int, batch: Batch) -> None:
        """Take a manifest."""
        self._batches.take(partition, offset, batch)
        first = self._horizon.first_retained.get(REFLECTIONS, {}).get(partition, 0)
        retained = {member.reflection_id for member in batch.members if member.offset >= first}
        # What is asked about again was in an earlier batch, of a branch perhaps in one before the fork.
        is_again, line = batch.plan.reason == "revoke", batch.plan.playbook
        self._unseen.setdefault(playbook_of(line) if is_again else line, set()).update(retained)

    def version(self, partition: int, offset: int, playbook: Playbook) -> None:
        """Take a record of ``history``."""
        settled = self._settled is None or offset < self._settled.get(partition, 0)
        self._versions.version(partition, offset, playbook, settled=settled)

    def update(self, partition: int, offset: int, update: Update) -> None:
        """Take an update."""
        self._updates.take(partition, offset, update)

    def reflection(
        self,
        partition: int,
        offset: int,
        playbook: str,
        reflection_id: str,
        content: str = "",
        known: Sequence[str] = (),
    ) -> None:
        """Take an acknowledged reflection; ``content`` is its fingerprint, ``known`` all ids it is a repeat under.

        It counts once on each line that learns from it: on its playbook and on the playbook's branches.
        """
        place = (partition, offset)
        first = self._known_as(playbook, reflection_id, known)
        self._contents.take(place, (playbook, first), content)
        for line in (playbook, *self._batches.branches(playbook, first, offset, self._versions.ended)):
            self._unseen.get(line, set()).discard(reflection_id)
            self._account(place, line, self._known_as(line, reflection_id, known))

    def _known_as(self, line: str, reflection_id: str, known: Sequence[str]) -> str:
        batched = (known_id for known_id in (reflection_id, *known) if self._is_batched(line, known_id))
        return next(batched, reflection_id)

    def _account(self, place: Place, line: str, reflection_id: str) -> None:
        key = (line, reflection_id)
        self._dead_letters.identify(place, key)
        fates = self._fates.setdefault(line, {})
        fates[reflection_id] = max(self._fate(place, key), fates.get(reflection_id, Fate.LOST))
        if fates[reflection_id] == Fate.LOST:
            self._lost[key] = f"{REFLECTIONS}[{place[0]}]@{place[1]}: {reflection_id} of {line}"
        else:
            self._lost.pop(key, None)

    def _fate(self, place: Place, key: Key) -> Fate:
        name, reflection_id = key
        attempt, sequence = self._batches.last_batch(name, reflection_id)
        # A retry raises the attempt: the first dead letter is undone by attempt 1, the second by attempt 2.
        letter_at = self._dead_letters.after(key, attempt)
        if (attempt, sequence) == NOWHERE:
            letter_at = letter_at or self._dead_letters.unread(key)
            waits = not self._dead_letters.is_passed(place)
            return self._dead_letters.fate(letter_at) if letter_at else Fate.PENDING if waits else Fate.LOST
        if letter_at is not None:
            return self._dead_letters.fate(letter_at)
        if sequence > self._versions.published.get(name, 0):
            return Fate.PENDING
        return Fate.LOST if (name, sequence, reflection_id) in self._updates.failed else Fate.APPLIED

    def trace(self, partition: int, offset: int, trace: Trace) -> None:
        """Take an acknowledged trace."""
        name, trace_id = trace.playbook, trace.trace_id
        self._traces.take((partition, offset), (name, trace_id), fingerprint(trace))
        today, earlier = derived_ids(name, trace_id)
        if self._is_batched(name, today) and self._is_batched(name, earlier):
            text = f"trace {trace_id} of {name} counts twice, as {today} and as {earlier}"
            self._batches.doubled((name, today), text)

    def _is_batched(self, playbook: str, reflection_id: str) -> bool:
        return self._batches.last_batch(playbook, reflection_id) != NOWHERE

    def _is_reflected(self, playbook: str, reflection_id: str) -> bool:
        return reflection_id in self._fates.get(playbook, ()) or self._is_batched(playbook, reflection_id)

    def command(self, partition: int, offset: int, command: Command) -> None:
        """Take a command."""
        # A label remembers the ids of its own commands.
        key = (
            label_key(command.playbook, command.label) if command.label else command.playbook,
            command.command_id,
        )
        self._commands.take((partition, offset), key, fingerprint(command))

    def undecodable(self, partition: int, offset: int, reason: str, topic: str = REFLECTIONS) -> None:
        """Take a record of ``reflections`` or ``traces`` that is none: once passed, it must be a dead letter."""
        place = (partition, offset)
        dead_letters = self._traces.dead_letters if topic == TRACES else self._dead_letters
        if dead_letters.is_passed(place) and not dead_letters.has(place):
            where = f"{topic}[{partition}]@{offset}"
            self._findings.add("unread", f"{where} cannot be read and is no dead letter: {reason}")

    def report(self) -> LedgerReport:
        """Return what was found; nothing may be fed afterwards."""
        self._versions.close()
        self._close_updates()
        self._close_reflections()
        traces = self._traces.counts(self._is_reflected)
        counts = Counter(fate for fates in self._fates.values() for fate in fates.values())
        return LedgerReport(
            reflections=counts.total(),
            applied=counts[Fate.APPLIED],
            pending=counts[Fate.PENDING],
            dead_lettered=counts[Fate.DEAD_LETTERED] + counts[Fate.DROPPED],
            dropped=counts[Fate.DROPPED],
            lost=counts[Fate.LOST],
            double=len(self._batches.doubles),
            duplicates=self._contents.duplicates,
            traces=traces,
            conflicts=self._conflicts.texts(),
            violations=self._findings.texts(),
            horizon=self._horizon,
            planned_calls=self._updates.planned_calls,
            usage=self._updates.usage,
        )

    def _close_updates(self) -> None:
        cut = self._cut(topics.UPDATES.name)
        for (name, sequence), where in self._versions.applied.items():
            home = self._batches.partition_of.get(name, -1)
            judged = (name, sequence) in self._batches.sizes and home not in cut
            if judged and (name, sequence) not in self._updates.effective:
                self._findings.add("update", f"{where} publishes batch {sequence}, which has no update")

    def _close_reflections(self) -> None:
        for (name, reflection_id), where in self._lost.items():
            _, sequence = self._batches.last_batch(name, reflection_id)
            passed = f"no copy of it got through batch {sequence}" if sequence else "shuffle has passed it"
            self._findings.add("lost", f"{where}: {passed}, and it is no dead letter")
        for name, ids in self._unseen.items():
            for reflection_id in sorted(ids):
                sequence = self._batches.last_batch(name, reflection_id)[1]
                text = f"{reflection_id} is a member of batch {sequence} of {name} and not in {REFLECTIONS}"
                self._findings.add("member", text)
