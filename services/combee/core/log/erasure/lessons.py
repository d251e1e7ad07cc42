"""Erased lessons: those that name a subject, and those learned only from erased runs."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from combee.core.log.erasure.runs import Runs
from combee.core.log.erasure.selector import Selector
from combee.core.playbook.lineage.evidence import has_all
from combee.core.playbook.trust import said_digest, wording_digest
from combee_schemas.base import Message, branch_in, playbook_of
from combee_schemas.batch import Batch
from combee_schemas.errors import FatalError
from combee_schemas.plan import Plan
from combee_schemas.playbook import Entry, Playbook, Rejected
from combee_schemas.scan import Operation, Planned, Update

_COLON = re.compile(": ")
HEAD_CHARS = 100
"""Number of leading characters by which a quoted, perhaps cut, content is recognised."""


class ErasureError(FatalError):
    """The erasure cannot be carried out as requested; nothing was changed."""


@dataclass(slots=True)
class Lessons:
    """Reads all versions before manifests, then decides for each entry and quotation whether it is erased."""

    selector: Selector
    runs: Runs
    with_playbooks: bool = False
    """Whether playbooks whose names contain a subject are erased completely."""
    reflections: set[tuple[str, int]] = field(default_factory=set)
    """Per playbook, places of erased runs' reflections that are in a batch."""
    batches: set[str] = field(default_factory=set)
    """Batches that hold erased runs: whose words stand there without evidence, nobody can tell."""
    gone: set[tuple[str, str]] = field(default_factory=set)
    """Lines and ids of the erased entries."""
    _published: dict[str, int] = field(default_factory=dict)
    """Per line, the last batch with a version."""
    _under_way: set[tuple[str, int]] = field(default_factory=set)
    """Batches without a version that hold erased runs."""
    _theirs: set[tuple[str, str]] = field(default_factory=set)
    """What rests on erased runs in some version or update: lines and ids of entries, playbooks and digests of texts.

    Snapshots name only a part of an entry's evidence."""
    _others: set[tuple[str, str]] = field(default_factory=set)
    """The same of other runs."""
    _written: set[tuple[str, str]] = field(default_factory=set)
    """What people wrote, on no run's word: playbooks and digests."""
    _wordings: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """Digests of what entries have said whose snapshots name only a part of their evidence, by line and id."""
    _doubtful: list[tuple[str, Entry]] = field(default_factory=list)
    _heads: set[str] = field(default_factory=set)
    """Beginnings of contents, and the digests by which claims and rejections know them."""
    _named: set[str] = field(default_factory=set)
    """Digests of contents that name a subject."""
    _left: set[str] = field(default_factory=set)
    """Digests of what the entries say that stay in some version."""

    def add(self, message: Message) -> None:
        """Read a version, an update or a manifest."""
        match message:
            case Playbook():
                self._check_name(message.name)
                known = self._published.get(message.name, 0)
                self._published[message.name] = max(known, message.batch_sequence)
                self._take_version(message)
            case Update():
                line = message.plan.playbook
                for operation in message.result.operations:
                    if self.is_erased_operation(message, operation):
                        self._note(operation.content)
                    self._tell(line, (playbook_of(line), said_digest(operation.content)), operation.evidence)
                for claim in message.result.known:
                    self._tell(line, (line, claim.entry_id), claim.evidence)
                for conflict in message.result.conflicts:
                    if self.runs.taught(line, conflict.evidence):
                        self._note(conflict.content)
            case Batch():
                self._take_manifest(message)

    def _take_manifest(self, batch: Batch) -> None:
        line, erased = batch.plan.playbook, self.runs.of(batch.plan.playbook)
        offsets = {member.offset for member in batch.members if member.reflection_id in erased}
        self.reflections.update((playbook_of(line), offset) for offset in offsets)
        if offsets:
            self.batches.add(batch.plan.batch_id)
        if offsets and batch.plan.sequence > self._published.get(line, 0):
            self._under_way.add((line, batch.plan.sequence))

    def _take_version(self, version: Playbook) -> None:
        erased = self.runs.of(version.name)
        for entry in version.entries:
            place = version.name, entry.id
            self._tell(version.name, place, entry.evidence)
            if erased and not has_all(entry):
                self._wordings.setdefault(place, set()).add(said_digest(entry.content))
            if erased and entry.by_hand and not entry.evidence_count:
                self._written.add((playbook_of(version.name), said_digest(entry.content)))
            if erased and version.holds == "entries" and self._is_doubtful(version.name, entry):
                self._doubtful.append((version.name, entry))
            elif self.is_erased(version, entry):
                self._forget(version.name, entry)
            else:
                self._left.add(said_digest(entry.content))

    def _tell(self, line: str, what: tuple[str, str], evidence: Iterable[str]) -> None:
        if erased := self.runs.of(line):
            self._theirs.update(what for one in evidence if one in erased)
            self._others.update(what for _ in self.runs.others(line, evidence))

    def settle(self) -> None:
        """Judge after everything was read; nothing may be added afterwards.

        Raises
        ------
        ErasureError
            If an erased run is in a batch without a version.
        """
        if self._under_way:
            raise ErasureError(
                f"{len(self._under_way)} batches without a version contain runs to be erased: run the services"
                " without agents until 'combee status' shows none, and stop them; an archive with such batches cannot"
                " be rewritten"
            )
        for line, entry in self._doubtful:
            if self._is_named(entry) or self._is_taught(line, entry):
                self._forget(line, entry)
            else:
                self._left.add(said_digest(entry.content))

    def _forget(self, line: str, entry: Entry) -> None:
        self.gone.add((line, entry.id))
        self._note(entry.content)

    def _note(self, content: str) -> None:
        if content:
            rejected = wording_digest(content), said_digest(content)
            self._heads.update((content[:HEAD_CHARS], *rejected))
            if self._names((content,)):
                self._named.update(rejected)

    def is_erased(self, version: Playbook, entry: Entry) -> bool:
        """Return whether a version loses an entry; components stay, being whole prompts."""
        if version.holds == "components":
            return False
        return self._is_named(entry) or self._is_taught(version.name, entry)

    def is_erased_operation(self, update: Update, operation: Operation) -> bool:
        """Return whether the text of an operation is erased."""
        return self._names((operation.content, operation.section)) or (
            update.plan.settings.holds == "entries"
            and self.runs.taught(update.plan.playbook, operation.evidence)
        )

    def repeats(self, planned: Planned, operation: Operation) -> bool:
        """Return whether an operation says an erased lesson, or rewrites one, in words that no entry keeps.

        Without evidence are a consolidation, and what a model says of other batches' lessons.
        """
        plan = planned.plan
        if plan.settings.holds != "entries" or said_digest(operation.content) in self._left:
            return False
        named = {(plan.playbook, entry_id) for entry_id in operation.entry_ids}
        return self.quotes(operation.content) or not self.gone.isdisjoint(named)

    def is_over(self, plan: Plan) -> bool:
        """Return whether a batch has its version: nobody needs its calls' answers any more."""
        return plan.sequence <= self._published.get(plan.playbook, 0)

    def is_erased_rejection(self, line: str, rejected: Rejected) -> bool:
        """Return whether a line loses a rejection; one of what other runs taught stays, whoever says it again."""
        others = self.runs.others(line, rejected.evidence)
        return rejected.said in self._named or (self.quotes(rejected.said) and not others)

    def is_whole_playbook(self, line: str) -> bool:
        """Return whether a whole playbook is erased because its name contains a subject."""
        return self._names((playbook_of(line),))

    def quotes(self, text: str) -> bool:
        """Return whether a text begins like an erased content, perhaps after words of Combee's and a colon."""
        begins = (0, *(colon.end() for colon in _COLON.finditer(text)))
        return any(text[at : at + HEAD_CHARS] in self._heads for at in begins)

    def _is_named(self, entry: Entry) -> bool:
        return self._names((entry.content, entry.section))

    def _is_taught(self, line: str, entry: Entry) -> bool:
        if entry.by_hand and (playbook_of(line), said_digest(entry.content)) in self._written:
            return False
        if has_all(entry):
            return self.runs.taught(line, entry.evidence)
        place = line, entry.id
        known = {place, *((playbook_of(line), said) for said in self._wordings.get(place, ()))}
        return not self._theirs.isdisjoint(known) and self._others.isdisjoint(known)

    def _is_doubtful(self, line: str, entry: Entry) -> bool:
        """Return whether only other records tell if an entry rests on erased runs alone."""
        is_unknown = not has_all(entry) or entry.by_hand
        return bool(entry.evidence_count) and is_unknown and not self.runs.others(line, entry.evidence)

    def _names(self, texts: Iterable[str]) -> bool:
        return any(map(self.selector.subjects.named_in, texts))

    def _check_name(self, line: str) -> None:
        if self.is_whole_playbook(line):
            if not self.with_playbooks:
                raise ErasureError(
                    "the name of a playbook names the subject: --with-playbooks forgets such playbooks whole;"
                    " or say more of the subject"
                )
        elif self._names((branch_in(line),)):
            raise ErasureError(
                "the name of a branch names the subject, and its playbook's does not: such a name cannot be forgotten"
            )
