"""The account: every acknowledged reflection has exactly one fate, or it is lost."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from combee.core.log.dead_letters.subject import owner_in
from combee.core.log.fates import Fate, fate_of
from combee.core.log.ledger.batches import NOWHERE, Batches
from combee.core.log.ledger.carried import COMMAND, REFLECTION, TRACE, Carried, Read
from combee.core.log.ledger.checkpoint import NOTHING, Checkpoint
from combee.core.log.ledger.dead_letters import DeadLetters, Key, Place
from combee.core.log.ledger.decisions import Decisions
from combee.core.log.ledger.report import Calls, Findings, Horizon, LedgerReport, TraceCounts
from combee.core.log.ledger.traces import Contents, Traces
from combee.core.log.ledger.updates import Updates
from combee.core.log.ledger.versions import Versions
from combee.core.names.identity import derived_ids, fingerprint, identity_of, is_sent_as
from combee_schemas import topics
from combee_schemas.base import playbook_of
from combee_schemas.batch import Batch
from combee_schemas.command import Command
from combee_schemas.dead_letter import DeadLetter, Resolution
from combee_schemas.erasure import Erasure
from combee_schemas.playbook import Playbook, label_key
from combee_schemas.scan import Update
from combee_schemas.trace import Trace

REFLECTIONS = topics.REFLECTIONS.name
TRACES = topics.TRACES.name
COMMANDS = topics.COMMANDS.name
BATCHES = topics.BATCHES.name
LETTERS = topics.DEAD_LETTERS.name
NO_PLACE = (-1, -1)


class Ledger:
    """Feed the facts topic by topic, each partition in order; then ask for the report.

    The topics come in this order: ``playbooks``, ``labels``, ``decisions``, ``dead-letters``, ``batches``,
    ``history``, ``updates``, ``reflections``, ``traces``, ``commands``. While the system runs, each topic must be
    read up to an end looked up after the ends of its effects: committed offsets, decisions, history, updates,
    batches, dead letters, reflections, traces.

    ``beginnings`` are the first retained offsets by topic and partition, ``committed`` the offsets of group
    ``shuffle`` on ``reflections``, ``reflected`` those of group ``reflect`` on ``traces``, ``settled`` the ends of
    ``history`` before ``playbooks`` was read.

    With a ``checkpoint``, feed only its open records and later ones; ``behind`` then tells what could not be judged.
    """

    def __init__(
        self,
        *,
        beginnings: Mapping[str, Mapping[int, int]],
        committed: Mapping[int, int],
        reflected: Mapping[int, int] = MappingProxyType({}),
        settled: Mapping[int, int] | None = None,
        checkpoint: Checkpoint = NOTHING,
    ) -> None:
        self.carried = Carried(checkpoint)
        self.horizon = Horizon.model_validate({"first_retained": checkpoint.first_retained or beginnings})
        self._settled = settled
        self._findings = Findings()
        self.dead_letters = DeadLetters(committed=committed)
        proof = None if self._cut(topics.DEAD_LETTERS.name) else self.dead_letters.proves
        self.batches = Batches(findings=self._findings, cut=self._cut(topics.BATCHES.name), proof=proof)
        self.versions = Versions(
            findings=self._findings,
            batches=self.batches,
            behind=self.carried.behind,
            cut=self._cut(topics.HISTORY.name),
        )
        self.updates = Updates(findings=self._findings, batches=self.batches)
        self.decisions = Decisions(findings=self._findings)
        self.fates: dict[str, dict[str, Fate]] = {}
        self._lost: dict[tuple[str, str], str] = {}
        self._conflicts = Findings()
        self.contents = Contents(topic=REFLECTIONS, conflicts=self._conflicts)
        self.commands = Contents(topic=COMMANDS, conflicts=self._conflicts)
        self.traces = Traces(
            findings=self._findings,
            contents=Contents(topic=TRACES, conflicts=self._conflicts),
            dead_letters=DeadLetters(committed=reflected),
        )
        self._unseen: dict[str, set[str]] = {}
        """Members that ``reflections`` must still hold and that have not been read there yet."""
        self.read: list[Read] = []
        self.asked: list[tuple[Place, Key]] = []
        """All commands with their places."""
        self.erasures: list[Erasure] = []
        self.unread: dict[str, list[Place]] = {}
        """Per topic, unreadable records that their reader has not passed."""
        for name, line in checkpoint.lines.items():
            self.batches.restore(name, line)
            self.versions.restore(name, line)
            self.decisions.restore(name, line)

    @property
    def behind(self) -> Sequence[str]:
        """Checks that would need records before the checkpoint."""
        return self.carried.behind

    def _cut(self, topic: str) -> frozenset[int]:
        first_retained = self.horizon.first_retained.get(topic, {})
        return frozenset(partition for partition, first in first_retained.items() if first > 0)

    def snapshot(self, partition: int, offset: int, name: str, playbook: Playbook | None) -> None:
        """Add a record of ``playbooks``; None is a tombstone."""
        self.versions.snapshot(partition, offset, name, playbook)

    def dead_letter(self, letter: DeadLetter, at: Place = NO_PLACE) -> None:
        """Add a dead letter; only those of ``reflections`` and ``traces`` matter here."""
        dead_letters = self._dead_letters_of(letter, at)
        if dead_letters is not None:
            if letter.origin_topic == TRACES:
                # Without all its bytes nothing tells the owner of its id: it is found by its place.
                own_id = "" if letter.truncated else identity_of(letter.record_id, owner_in(letter))
                letter = letter.model_copy(update={"record_id": own_id})
            dead_letters.add(letter, at)

    def resolution(self, resolution: Resolution, at: Place = NO_PLACE) -> None:
        """Add a decision about a dead letter."""
        dead_letters = self._dead_letters_of(resolution, at)
        if dead_letters is not None:
            dead_letters.resolve(resolution, at)

    def _dead_letters_of(self, letter: DeadLetter | Resolution, at: Place) -> DeadLetters | None:
        if letter.origin_topic not in {REFLECTIONS, TRACES}:
            return None
        if self.carried.is_new(LETTERS, at):
            by = f"{LETTERS}[{at[0]}]@{at[1]}"
            self.carried.refer(letter.origin_topic, (letter.origin_partition, letter.origin_offset), by)
        return self.dead_letters if letter.origin_topic == REFLECTIONS else self.traces.dead_letters

    def batch(self, partition: int, offset: int, batch: Batch) -> None:
        """Add a manifest."""
        if not self.carried.is_new(BATCHES, (partition, offset)):
            self.batches.remember(partition, offset, batch)
            return
        for member in batch.members:
            self.carried.refer(REFLECTIONS, (partition, member.offset), f"{BATCHES}[{partition}]@{offset}")
        self.batches.add(partition, offset, batch)
        first = self.horizon.first_retained.get(REFLECTIONS, {}).get(partition, 0)
        retained = {member.reflection_id for member in batch.members if member.offset >= first}
        # These reflections were in an earlier batch, on a branch possibly in one before the fork.
        is_again, line = batch.plan.reason == "revoke", batch.plan.playbook
        self._unseen.setdefault(playbook_of(line) if is_again else line, set()).update(retained)

    def version(self, partition: int, offset: int, playbook: Playbook) -> None:
        """Add a record of ``history``."""
        settled = self._settled is None or offset < self._settled.get(partition, 0)
        self.versions.version(partition, offset, playbook, settled=settled)

    def update(self, partition: int, offset: int, update: Update) -> None:
        """Add an update."""
        self.updates.add(partition, offset, update)

    def reflection(
        self,
        partition: int,
        offset: int,
        playbook: str,
        reflection_id: str,
        content: str = "",
        known: Sequence[str] = (),
    ) -> None:
        """Add an acknowledged reflection; ``content`` is its fingerprint, ``known`` all ids that make it a repeat.

        ``reflection_id`` is its likeliest identity; the identity in a manifest has precedence.

        It counts once on each line that learns from it: its playbook and the playbook's branches.
        """
        place = (partition, offset)
        verified = self.batches.identity_at(place)
        if any(is_sent_as(verified, sent_id) for sent_id in known):
            reflection_id, known = verified, ()
        first = self._known_as(playbook, reflection_id, known)
        ids = frozenset((reflection_id, *known))
        self._meet(REFLECTIONS, REFLECTION, place, playbook, ids)
        self.read.append(Read(place=place, playbook=playbook, ids=ids, key=(playbook, first)))
        self.contents.add(place, (playbook, first), content)
        for line in (playbook, *self.batches.branches(playbook, first, offset, self.versions.ended)):
            self._unseen.get(line, set()).discard(reflection_id)
            self._account(place, line, self._known_as(line, reflection_id, known))

    def _meet(self, topic: str, kind: str, place: Place, playbook: str, ids: Iterable[str]) -> None:
        if self.carried.is_new(topic, place):
            self.carried.meet(kind, playbook, ids, f"{topic}[{place[0]}]@{place[1]}")

    def _known_as(self, line: str, reflection_id: str, known: Sequence[str]) -> str:
        batched = (known_id for known_id in (reflection_id, *known) if self._is_batched(line, known_id))
        return next(batched, reflection_id)

    def _account(self, place: Place, line: str, reflection_id: str) -> None:
        key = (line, reflection_id)
        self.dead_letters.identify(place, key)
        fates = self.fates.setdefault(line, {})
        fates[reflection_id] = max(self._fate(place, key), fates.get(reflection_id, Fate.LOST))
        if fates[reflection_id] == Fate.LOST:
            self._lost[key] = f"{REFLECTIONS}[{place[0]}]@{place[1]}: {reflection_id} of {line}"
        else:
            self._lost.pop(key, None)

    def _fate(self, place: Place, key: Key) -> Fate:
        name, reflection_id = key
        attempt, sequence = self.batches.last_batch(name, reflection_id)
        batched = (attempt, sequence) != NOWHERE
        # A retry raises the attempt: the first dead letter is undone by attempt 1, the second by attempt 2.
        letter_at = self.dead_letters.after(key, attempt) or (
            None if batched else self.dead_letters.unread(key)
        )
        return fate_of(
            letter=self.dead_letters.fate(letter_at) if letter_at else None,
            batched=batched,
            applied=sequence <= self.versions.published.get(name, 0),
            answered=(name, sequence, reflection_id) not in self.updates.failed,
            passed=self.dead_letters.is_passed(place),
        )

    def trace(self, partition: int, offset: int, trace: Trace, *, signed: bool = False) -> None:
        """Add an acknowledged trace; ``signed``: it may prove its source, which then owns its id."""
        name, trace_id = trace.playbook, trace.trace_id
        place = partition, offset
        owner = trace.source.name if signed and trace.source is not None else ""
        own_id = identity_of(trace_id, owner)
        derived = derived_ids(name, trace_id, owner)
        unproven = derived_ids(name, trace_id) if owner else ()
        self._meet(TRACES, TRACE, place, name, (own_id,))
        self._meet(TRACES, REFLECTION, place, name, (*derived, *unproven))
        self.traces.add(place, (name, own_id), fingerprint(trace), derived, unproven)

    def _is_batched(self, playbook: str, reflection_id: str) -> bool:
        return self.batches.last_batch(playbook, reflection_id) != NOWHERE

    def _is_reflected(self, playbook: str, reflection_id: str) -> bool:
        return reflection_id in self.fates.get(playbook, ()) or self._is_batched(playbook, reflection_id)

    def command(self, partition: int, offset: int, command: Command) -> None:
        """Add a command."""
        # A label remembers the ids of its own commands.
        key = (
            label_key(command.playbook, command.label) if command.label else command.playbook,
            command.command_id,
        )
        self._meet(COMMANDS, COMMAND, (partition, offset), key[0], (command.command_id,))
        self.asked.append(((partition, offset), key))
        self.commands.add((partition, offset), key, fingerprint(command))

    def erasure(self, erasure: Erasure) -> None:
        """Add the record of an erasure."""
        self.erasures.append(erasure)

    def undecodable(self, partition: int, offset: int, reason: str, topic: str = REFLECTIONS) -> None:
        """Add an invalid record of ``reflections`` or ``traces``; once passed, it must be a dead letter."""
        place = (partition, offset)
        dead_letters = self.traces.dead_letters if topic == TRACES else self.dead_letters
        if not dead_letters.is_passed(place):
            self.unread.setdefault(topic, []).append(place)
        elif not dead_letters.has(place):
            where = f"{topic}[{partition}]@{offset}"
            self._findings.add("unread", f"{where} cannot be read and is not a dead letter: {reason}")

    def report(self) -> LedgerReport:
        """Return the findings; nothing may be added afterwards."""
        self.versions.close()
        self.decisions.close()
        self._close_updates()
        self._close_reflections()
        before = self.carried.checkpoint.totals
        closed_traces = TraceCounts(
            acknowledged=before.traces_reflected + before.traces_dropped + before.traces_duplicates,
            reflected=before.traces_reflected,
            dead_lettered=before.traces_dropped,
            duplicates=before.traces_duplicates,
        )
        traces = self.traces.counts(self._is_reflected) + closed_traces
        counts = Counter(fate for fates in self.fates.values() for fate in fates.values())
        counts += Counter({Fate.APPLIED: before.applied, Fate.DROPPED: before.dropped})
        spent = self.updates.spent.values()
        return LedgerReport(
            reflections=counts.total(),
            applied=counts[Fate.APPLIED],
            pending=counts[Fate.WAITING] + counts[Fate.IN_BATCH],
            dead_lettered=counts[Fate.DEAD_LETTERED] + counts[Fate.DROPPED],
            dropped=counts[Fate.DROPPED],
            lost=counts[Fate.LOST],
            double=len(self.batches.doubles),
            duplicates=before.duplicates + self.contents.duplicates,
            traces=traces,
            conflicts=self._conflicts.texts(),
            violations=self._findings.texts(),
            horizon=self.horizon,
            model_calls=Calls.of(
                sum((usage for _, usage in spent), start=before.usage),
                before.planned_calls + sum(planned for planned, _ in spent),
            ),
            erasures=tuple(self.erasures),
            continued_from_ms=self.carried.checkpoint.taken_at_ms or None,
        )

    def _close_updates(self) -> None:
        cut = self._cut(topics.UPDATES.name)
        for (name, sequence), where in self.versions.applied.items():
            home = self.batches.partition_of.get(name, -1)
            judged = (name, sequence) in self.batches.sizes and home not in cut
            if judged and (name, sequence) not in self.updates.effective:
                self._findings.add("update", f"{where} publishes batch {sequence}, which has no update")

    def _close_reflections(self) -> None:
        for (name, reflection_id), where in self._lost.items():
            _, sequence = self.batches.last_batch(name, reflection_id)
            passed = f"no copy of it got through batch {sequence}" if sequence else "shuffle has passed it"
            self._findings.add("lost", f"{where}: {passed}, and it is not a dead letter")
        for name, ids in self._unseen.items():
            for reflection_id in sorted(ids):
                sequence = self.batches.last_batch(name, reflection_id)[1]
                text = f"{reflection_id} is a member of batch {sequence} of {name} and not in {REFLECTIONS}"
                self._findings.add("member", text)
