"""The erased runs, by all ids of each: of its trace, its reflection and its outcome."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from combee.core.gate.canary import caller_at
from combee.core.log.archive.cut import read
from combee.core.log.dead_letters.subject import identified_in
from combee.core.log.erasure.selector import Selector
from combee.core.names.identity import MARK, claimed_identities, derived_ids, identity_of, owner_of
from combee_schemas import topics
from combee_schemas.base import Message, playbook_of
from combee_schemas.batch import Batch, Member
from combee_schemas.dead_letter import DeadLetter
from combee_schemas.outcome import Outcome
from combee_schemas.playbook import Playbook
from combee_schemas.records import PROOF_HEADER, Record, header
from combee_schemas.reflection import Reflection
from combee_schemas.topics import Published
from combee_schemas.trace import Trace

RUN_OF: Mapping[str, type[Message]] = {
    topic.name: topic.message for topic in (topics.TRACES, topics.REFLECTIONS, topics.OUTCOMES)
}
"""Message types about one run, by topic; dead letters may hold them as well."""
TELLING = {*RUN_OF, topics.BATCHES.name, topics.DEAD_LETTERS.name, topics.HISTORY.name}
"""Topics that identify runs. Manifests are permanent and know runs whose texts have expired."""
NOBODY: frozenset[str] = frozenset()


@dataclass(slots=True)
class Identities:
    """Owners of one archive's reflections, as its manifests record them."""

    _own_ids: dict[tuple[str, int, int], str] = field(default_factory=dict)
    """Per playbook and place, ids of members whose record alone does not determine the id."""
    _taken: set[tuple[str, str]] = field(default_factory=set)
    """These ids with their playbooks: who claims one elsewhere repeats it, or forges it."""

    def add(self, batch: Batch, partition: int) -> None:
        """Read a manifest; its members stand on its own partition."""
        playbook = playbook_of(batch.plan.playbook)
        for member in (*batch.members, *batch.dropped):
            if member.source is not None or MARK in member.reflection_id:
                self._own_ids[playbook, partition, member.offset] = member.reflection_id
                self._taken.add((playbook, member.reflection_id))

    def identified(self, record: Record, message: Message | None) -> Message | None:
        """Return a record's message, a reflection under its identity."""
        if not isinstance(message, Reflection):
            return message
        own_id = self._own_ids.get((message.playbook, record.partition, record.offset))
        if own_id is None:
            own_id = claimed_identities(message.reflection_id, message.source, record.headers)[0]
            if self.is_taken(message.playbook, own_id):
                own_id = identity_of(message.reflection_id, "")
        return message.model_copy(update={"reflection_id": own_id})

    def is_taken(self, playbook: str, own_id: str) -> bool:
        """Return whether a manifest gives this id to a record of its own."""
        return (playbook, own_id) in self._taken


@dataclass(slots=True)
class Runs:
    """Ids by playbook; a run belongs to its playbook, whichever lines learned from it."""

    ids: dict[str, set[str]] = field(default_factory=dict)
    """Of reflections."""
    traces: dict[str, set[str]] = field(default_factory=dict)
    """Of runs: apart, because any producer may call its run like somebody else's reflection."""
    hidden: set[str] = field(default_factory=set)
    """Ids that are hashes of an id with a subject's name: they would confirm a guessed name."""
    callers: dict[str, set[int]] = field(default_factory=dict)
    """Per playbook, hashes in canaries of callers whose runs name a subject."""
    revoked: dict[str, set[str]] = field(default_factory=dict)
    """Per playbook, revoked reflections: no later version rests on them."""

    def add(self, playbook: str, *ids: str) -> None:
        """Add reflections."""
        self.ids.setdefault(playbook, set()).update(ids)

    def of(self, line: str) -> frozenset[str] | set[str]:
        """Return the reflections of a line's playbook."""
        return self.ids.get(playbook_of(line), NOBODY)

    def others(self, line: str, ids: Iterable[str]) -> frozenset[str]:
        """Return which of these reflections are left: neither erased nor revoked."""
        return frozenset(ids).difference(self.of(line), self.revoked.get(playbook_of(line), NOBODY))

    def taught(self, line: str, ids: Collection[str]) -> bool:
        """Return whether what rests on these rests on erased runs alone; what is revoked does not count."""
        return self.has(line, ids) and not self.others(line, ids)

    def has(self, line: str, ids: Iterable[str]) -> bool:
        """Return whether one of these reflections belongs to an erased run."""
        return not self.of(line).isdisjoint(ids)

    def has_trace(self, line: str, run_id: str | None) -> bool:
        """Return whether this is the id of an erased run."""
        return run_id in self.traces.get(playbook_of(line), NOBODY)

    def is_of(self, message: Message) -> bool:
        """Return whether a message belongs to an erased run."""
        line = message.playbook_name
        if isinstance(message, Published) and self.has_trace(line, message.run_id):
            return True
        return not isinstance(message, Trace | Outcome) and self.has(line, message.run_ids)

    def read(self, record: Record, selector: Selector, identities: Identities) -> None:
        """Add the run of an archived record if the selector means it; manifests come before reflections."""
        if record.topic not in TELLING:
            return
        message = identities.identified(record, read(topics.BY_NAME[record.topic], record))
        if isinstance(message, Batch):
            identities.add(message, record.partition)
            self._take_members(message, selector)
        if isinstance(message, Playbook):
            self.revoked.setdefault(playbook_of(message.name), set()).update(message.revoked)
        value, proof = record.value, header(record.headers, PROOF_HEADER)
        if isinstance(message, DeadLetter):
            # A letter that names the subject only in its reason identifies no run.
            letter, value, proof = message, message.value, message.proof
            message = identified_in(letter, RUN_OF.get(letter.origin_topic))
            if isinstance(message, Reflection) and not letter.record_id:  # it claims its id
                message = None if identities.is_taken(message.playbook, message.reflection_id) else message
        if isinstance(message, Published):
            named = selector.subjects.named_in_bytes(value)
            self._read(message, selector, record.timestamp_ms, named=named, is_signed=proof is not None)

    def _read(
        self, message: Published, selector: Selector, at_ms: int, *, named: bool, is_signed: bool
    ) -> None:
        if not (named or selector.means(message, at_ms)):
            return
        if isinstance(message, Reflection):
            self.add(message.playbook, message.reflection_id)
        if run_id := message.run_id:
            self.traces.setdefault(message.playbook, set()).add(run_id)
            owners = {"", message.source.name} if message.source and is_signed else {""}
            derived = [own_id for owner in owners for own_id in derived_ids(message.playbook, run_id, owner)]
            self.add(message.playbook, *derived)
            if selector.subjects.named_in(run_id):
                self.hidden.update(derived)
        if named and isinstance(message, Outcome) and message.shown and message.shown.canary:
            self.callers.setdefault(message.playbook, set()).add(caller_at(message.shown.canary))

    def _take_members(self, batch: Batch, selector: Selector) -> None:
        playbook = playbook_of(batch.plan.playbook)
        if batch.plan.reason == "revoke":
            selector = selector.timeless  # its members arrived with earlier batches
        wanted = {rule.value for rule in selector.rules if rule.kind == "id"}
        if selector.playbook not in {"", playbook}:
            wanted = set()
        owners = {"", *(owner_of(member.source) for member in batch.members)}
        derived = {
            own_id for run_id in wanted for owner in owners for own_id in derived_ids(playbook, run_id, owner)
        }
        self.add(
            playbook,
            *(
                member.reflection_id
                for member in (*batch.members, *batch.dropped)
                if member.erased or member.reflection_id in derived or self._is_meant(batch, member, selector)
            ),
        )

    @staticmethod
    def _is_meant(batch: Batch, member: Member, selector: Selector) -> bool:
        source = member.source
        texts = (member.reflection_id, *((source.name, source.proof) if source else ()))
        if any(map(selector.subjects.named_in, texts)):
            return True
        stands_for = Reflection(
            reflection_id=member.reflection_id, playbook=playbook_of(batch.plan.playbook), source=source
        )
        return bool(selector.rules) and selector.means_reflection(stands_for, batch.plan.closed_at_ms)
