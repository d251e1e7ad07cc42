"""Records after an erasure: each is kept, kept in part, or dropped.

Reflections and traces of erased runs are dropped as if they had expired, which every reader handles. Permanent
records keep their places and numbers: a manifest its members, an update its operations without their text, a version
its entries but the erased ones.
"""

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from combee.core.batching.plan import plan_hash
from combee.core.gate.canary import caller_at, place_of
from combee.core.log.archive.cut import line_of, read
from combee.core.log.dead_letters.subject import identified_in
from combee.core.log.erasure.lessons import ErasureError, Lessons
from combee.core.log.erasure.runs import Identities, Runs
from combee.core.log.erasure.selector import Marker, Subjects
from combee.core.names.identity import batch_seed
from combee.core.playbook.operations import MAX_DETAIL_CHARS
from combee.core.text.forms import comparable, comparable_spans
from combee_schemas import topics
from combee_schemas.base import Message, playbook_of
from combee_schemas.batch import Batch
from combee_schemas.canary import CanaryStatistics
from combee_schemas.codec import encode
from combee_schemas.command import Command
from combee_schemas.dead_letter import DeadLetter, Resolution, origin_of
from combee_schemas.marks import TextKind, rewritten
from combee_schemas.playbook import AppliedBatch, Change, Entry, Label, Playbook
from combee_schemas.records import Record
from combee_schemas.scan import Conflict, Operation, Partial, Planned, Update
from combee_schemas.topics import AnyTopic

ERASED = "erased"
"""Placeholder for a quotation."""
_BETWEEN_IDS = re.compile(r"[\s(),;]+")
Place = tuple[str, int, int]
M = TypeVar("M", bound=Message)
P = TypeVar("P", AppliedBatch, Planned)


@dataclass(slots=True)
class Rewriter:
    """Rewrites records in the order of an archive, and counts the changes."""

    lessons: Lessons
    marker: Marker
    identities: Identities = field(default_factory=Identities)
    dropped: Counter[str] = field(default_factory=Counter)
    rewritten: Counter[str] = field(default_factory=Counter)
    _plans: dict[str, str] = field(default_factory=dict)
    """New hashes of manifests whose members have other names, by batch id."""
    _letters: set[Place] = field(default_factory=set)
    """Original records of the dropped dead letters."""

    @property
    def subjects(self) -> Subjects:
        """The subjects to erase."""
        return self.lessons.selector.subjects

    @property
    def runs(self) -> Runs:
        """The erased runs."""
        return self.lessons.runs

    def prepare(self, batch: Batch, partition: int) -> None:
        """Read a manifest: records with its hash, and its reflections, may precede it."""
        self.identities.add(batch, partition)
        marked = self._marked(batch)
        if marked is not batch or self._is_touched(encode(batch)):
            after = self._batch(self._scrubbed(marked))
            if after.plan.sha256 != batch.plan.sha256:
                self._plans[batch.plan.batch_id] = after.plan.sha256

    def record(self, topic: AnyTopic, record: Record) -> Record | None:
        """Return the rewritten record; None: it is dropped."""
        message = read(topic, record)
        if self._goes(topic, record, self.identities.identified(record, message)):
            self.dropped[topic.name] += 1
            return None
        headers = tuple(
            (name, value)
            for name, value in record.headers
            if not (self.subjects.named_in(name) or self.subjects.named_in_bytes(value))
        )
        value = record.value if message is None else self._value(record.value or b"", message)
        after = replace(record, headers=headers, value=value)
        if after != record:
            self.rewritten[topic.name] += 1
        return after

    # ---- dropped records

    def _goes(self, topic: AnyTopic, record: Record, message: Message | None) -> bool:
        named = self.subjects.named_in_bytes(record.value) or self.subjects.named_in_bytes(record.key)
        if message is None:
            # The content of a batch that could not be decompressed is unknown.
            return named or bool(record.unread)
        if self.lessons.is_whole_playbook(line_of(topic, record, message)):
            return True
        match message:
            case DeadLetter():
                return self._letter_goes(message)
            case Resolution():
                return origin_of(message) in self._letters
            case Label():
                return self.subjects.named_in(message.label)
            case Command() if self._quotes(message):
                return True
        if message.ON_ERASURE == "dropped":
            return named or self._is_theirs(message)
        return message.ON_ERASURE == "unneeded"

    def _is_theirs(self, message: Message) -> bool:
        """Return whether a message is of an erased run, or a model's answer that repeats an erased lesson."""
        if self.runs.is_of(message):
            return True
        if not isinstance(message, Partial) or not self.lessons.is_over(message.plan):
            return False
        told = (*message.result.operations, *message.result.aside)
        return any(self.lessons.repeats(message, operation) for operation in told)

    def _quotes(self, message: Command) -> bool:
        contents = (
            *(entry.content for entry in message.entries),
            *(operation.content for operation in message.operations),
        )
        return any(map(self.lessons.quotes, contents))

    def _letter_goes(self, letter: DeadLetter) -> bool:
        topic = topics.BY_NAME.get(letter.origin_topic)
        inside = identified_in(letter, topic.message if topic and topic.message.RUN_IDS else None)
        goes = (
            letter.unread
            or any(map(self.subjects.named_in_bytes, (letter.key, letter.value)))
            or (
                self.runs.has_trace(letter.playbook, letter.record_id)
                if letter.origin_topic == topics.TRACES.name
                else self.runs.has(letter.playbook, (letter.record_id,))
            )
            or (inside is not None and self._is_theirs(inside))
        )
        if goes:
            self._letters.add(origin_of(letter))
        return goes

    # ---- kept records

    def _value(self, raw: bytes, message: Message) -> bytes:
        after = message
        match message:
            case Playbook():
                after = self._version(message)
            case Update():
                after = self._update(message)
            case CanaryStatistics():
                after = self._canary(message)
            case Batch():
                after = self._marked(message)
        after = self._planned_anew(after)
        if after is not message or self._is_touched(raw):
            after = self._scrubbed(after)
            after = self._batch(after) if isinstance(after, Batch) else after
        return raw if after == message else encode(after)

    def _is_touched(self, raw: bytes) -> bool:
        return bool(self.runs.hidden) or self.subjects.named_in_bytes(raw)

    def _planned_anew(self, message: Message) -> Message:
        """Return a message with the new hash of its batch's manifest."""
        match message:
            case Playbook(batch=AppliedBatch() as batch) if batch.plan.batch_id in self._plans:
                return message.model_copy(update={"batch": self._with_hash(batch)})
            case Planned() if message.plan.batch_id in self._plans:
                return self._with_hash(message)
        return message

    def _with_hash(self, planned: P) -> P:
        plan = planned.plan.model_copy(update={"sha256": self._plans[planned.plan.batch_id]})
        return planned.model_copy(update={"plan": plan})

    def _version(self, version: Playbook) -> Playbook:
        gone = {entry.id for entry in version.entries if self.lessons.is_erased(version, entry)}
        playbook = playbook_of(version.name)
        update: dict[str, Any] = {
            "entries": tuple(
                self._component(version, entry) for entry in version.entries if entry.id not in gone
            ),
            "sections": tuple(section for section in version.sections if not self.subjects.named_in(section)),
            "retired": tuple(entry for entry in version.retired if not self._tells(entry.content)),
            "rejected": tuple(
                entry
                for entry in version.rejected
                if not self.lessons.is_erased_rejection(version.name, entry)
            ),
            "changes": tuple(self._change(change, gone, version) for change in version.changes),
            "again": tuple(
                asked for asked in version.again if (playbook, asked.offset) not in self.lessons.reflections
            ),
        }
        same = all(getattr(version, name) == value for name, value in update.items())
        return version if same else version.model_copy(update=update)

    def _component(self, version: Playbook, entry: Entry) -> Entry:
        if version.holds != "components" or not self.subjects.named_in(entry.content):
            return entry
        return entry.model_copy(update={"content": self._without_names(entry.content)})

    def _without_names(self, text: str) -> str:
        """Return a text that must be kept, such as a whole prompt, without the names in it.

        A line with a name inside an escape is replaced by its mark.
        """
        for needle in self.subjects.needles:
            for start, end in reversed(list(comparable_spans(needle, text))):
                text = f"{text[:start]}{ERASED}{text[end:]}"
        return self._text("\n".join(map(self._text, text.split("\n"))))

    def _change(self, change: Change, gone: set[str], version: Playbook) -> Change:
        # Where ids leave a quotation no room to be recognised, they tell whose it is.
        is_cut = len(change.detail) == MAX_DETAIL_CHARS
        is_theirs = is_cut and self.runs.has(version.name, _BETWEEN_IDS.split(change.detail))
        if change.kind == "dropped" and version.batch is not None and version.holds == "entries":
            is_theirs = is_theirs or version.batch.plan.batch_id in self.lessons.batches
        if change.detail and (self._tells(change.detail) or change.entry_id in gone or is_theirs):
            return change.model_copy(update={"detail": ERASED})
        return change

    def _tells(self, text: str) -> bool:
        return self.subjects.named_in(text) or self.lessons.quotes(text)

    def _update(self, update: Update) -> Update:
        result = update.result
        operations = tuple(self._operation(update, operation) for operation in result.operations)
        known = tuple(
            claim.model_copy(update={"said": ""}) if self.lessons.quotes(claim.said) else claim
            for claim in result.known
        )
        erased = self.runs.of(update.plan.playbook)
        seen = tuple(
            one.model_copy(update={"text": ""})
            if one.text and (one.reflection_id in erased or self._tells(one.text))
            else one
            for one in result.seen
        )
        conflicts = tuple(self._conflict(update, conflict) for conflict in result.conflicts)
        after = {"operations": operations, "known": known, "seen": seen, "conflicts": conflicts}
        if all(getattr(result, name) == value for name, value in after.items()):
            return update
        return update.model_copy(update={"result": result.model_copy(update=after)})

    def _conflict(self, update: Update, conflict: Conflict) -> Conflict:
        """Return a conflict without the texts that are erased."""
        is_gone = (update.plan.playbook, conflict.entry_id) in self.lessons.gone
        is_gone = is_gone or self._may_be_theirs(update, conflict.evidence)
        texts = {"against": conflict.against, "content": conflict.content, "why": conflict.why}
        erased = {name: ERASED for name, text in texts.items() if text and (is_gone or self._tells(text))}
        return conflict.model_copy(update=erased) if erased else conflict

    def _may_be_theirs(self, update: Update, evidence: Collection[str]) -> bool:
        """Return whether words without evidence may be those of an erased run."""
        is_from_them = update.plan.batch_id in self.lessons.batches
        return is_from_them and not evidence and update.plan.settings.holds == "entries"

    def _operation(self, update: Update, operation: Operation) -> Operation:
        """Return an operation; without its text it still counts, so that ids stay the same."""
        is_erased = self.lessons.is_erased_operation(update, operation)
        is_erased = is_erased or self._may_be_theirs(update, operation.evidence)
        is_erased = is_erased or (not operation.evidence and self.lessons.repeats(update, operation))
        if not (operation.content and is_erased):
            return operation
        if update.plan.settings.holds == "components":
            return operation.model_copy(update={"content": self._without_names(operation.content)})
        return operation.model_copy(update={"content": self.marker(operation.content)})

    def _canary(self, statistics: CanaryStatistics) -> CanaryStatistics:
        """Return statistics without the subject's hash, which would confirm a guessed name."""
        playbook, terms = statistics.playbook, statistics.terms
        names = {spelling for given in self.subjects.given for spelling in (given, comparable(given))}
        gone = self.runs.callers.get(playbook, set()).union(
            caller_at(place_of(playbook, terms, name)) for name in names
        )
        if gone.isdisjoint((*statistics.counted, *(caller for caller, _ in statistics.waiting))):
            return statistics
        return statistics.model_copy(
            update={
                "counted": tuple(caller for caller in statistics.counted if caller not in gone),
                "waiting": tuple(caller for caller in statistics.waiting if caller[0] not in gone),
            }
        )

    def _marked(self, batch: Batch) -> Batch:
        """Return a manifest that tells which runs are erased, since nothing else will."""
        erased = self.runs.of(batch.plan.playbook)
        members = tuple(
            member.model_copy(update={"erased": True}) if member.reflection_id in erased else member
            for member in batch.members
        )
        return batch if members == batch.members else batch.model_copy(update={"members": members})

    def _batch(self, batch: Batch) -> Batch:
        """Return a manifest with the seed and hash of its members' new names."""
        ids = tuple(member.reflection_id for member in batch.members)
        plan = batch.plan
        if any(reflection_id.startswith(f"{ERASED}-") for reflection_id in ids):
            seed = batch_seed(plan.playbook, plan.sequence, ids, plan.settings.salt)
            batch = batch.model_copy(update={"seed": seed})
        return batch.model_copy(update={"plan": plan.model_copy(update={"sha256": plan_hash(batch)})})

    def _scrubbed(self, message: M) -> M:
        """Return a message in which every text with a subject is replaced by a mark; hashes are kept."""
        after = rewritten(message, dict.fromkeys((TextKind.TEXT, TextKind.NAME), self._text))
        if rewritten(message, {TextKind.WORD: self._text}) != message:
            raise ErasureError(
                f"a {message.type} cannot be read without the subject: it is part of words that the format needs; say"
                " more of the subject"
            )
        return after

    def _text(self, text: str) -> str:
        return self.marker(text) if text in self.runs.hidden or self.subjects.named_in(text) else text
