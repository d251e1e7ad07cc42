"""The erased runs, by all ids of each: of its trace, its reflection and its outcome."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from combee.core.gate.canary import caller_at
from combee.core.log.archive.cut import read
from combee.core.log.dead_letters.subject import identified_in
from combee.core.log.erasure.selector import Selector
from combee.core.names.identity import MARK, claimed_identities, derived_ids, owner_of
from combee_schemas import topics
from combee_schemas.base import Message, playbook_of
from combee_schemas.batch import Batch, Member
from combee_schemas.dead_letter import DeadLetter
from combee_schemas.outcome import Outcome
from combee_schemas.records import Record
from combee_schemas.reflection import Reflection
from combee_schemas.topics import Published

RUN_OF: Mapping[str, type[Message]] = {
    topic.name: topic.message for topic in (topics.TRACES, topics.REFLECTIONS, topics.OUTCOMES)
}
"""Message types about one run, by topic; dead letters may hold them as well."""
TELLING = {*RUN_OF, topics.BATCHES.name, topics.DEAD_LETTERS.name}
"""Topics that identify runs. Manifests are permanent and know runs whose texts have expired."""
NOBODY: frozenset[str] = frozenset()


@dataclass(slots=True)
class Identities:
    """Owners of one archive's reflections, as its manifests record them."""

    _own_ids: dict[tuple[str, int], str] = field(default_factory=dict)
    """Per playbook and place, ids of members whose record alone does not determine the id."""

    def add(self, batch: Batch) -> None:
        """Read a manifest."""
        playbook = playbook_of(batch.plan.playbook)
        for member in (*batch.members, *batch.dropped):
            if member.source is not None or MARK in member.reflection_id:
                self._own_ids[playbook, member.offset] = member.reflection_id

    def identified(self, record: Record, message: Message | None) -> Message | None:
        """Return a record's message, a reflection under its identity."""
        if not isinstance(message, Reflection):
            return message
        claimed = claimed_identities(message.reflection_id, message.source, record.headers)[0]
        own_id = self._own_ids.get((message.playbook, record.offset), claimed)
        return message.model_copy(update={"reflection_id": own_id})


@dataclass(slots=True)
class Runs:
    """Ids by playbook; a run belongs to its playbook, whichever lines learned from it."""

    ids: dict[str, set[str]] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    """Ids that are hashes of an id with a subject's name: they would confirm a guessed name."""
    callers: dict[str, set[int]] = field(default_factory=dict)
    """Per playbook, hashes in canaries of callers whose runs name a subject."""

    def add(self, playbook: str, *ids: str) -> None:
        """Add a run."""
        self.ids.setdefault(playbook, set()).update(ids)

    def of(self, line: str) -> frozenset[str] | set[str]:
        """Return the ids of a line's playbook."""
        return self.ids.get(playbook_of(line), NOBODY)

    def has(self, line: str, ids: Iterable[str]) -> bool:
        """Return whether one of these ids belongs to an erased run."""
        return not self.of(line).isdisjoint(ids)

    def read(self, record: Record, selector: Selector, identities: Identities) -> None:
        """Add the run of an archived record if the selector means it; manifests come before reflections."""
        if record.topic not in TELLING:
            return
        message = identities.identified(record, read(topics.BY_NAME[record.topic], record))
        if isinstance(message, Batch):
            identities.add(message)
            self._take_members(message, selector)
        value = record.value
        if isinstance(message, DeadLetter):
            # A letter that names the subject only in its reason identifies no run.
            value, message = message.value, identified_in(message, RUN_OF.get(message.origin_topic))
        if isinstance(message, Published):
            named = selector.subjects.named_in_bytes(value)
            self._read(message, selector, record.timestamp_ms, named=named)

    def _read(self, message: Published, selector: Selector, at_ms: int, *, named: bool) -> None:
        if not (named or selector.means(message, at_ms)):
            return
        self.add(message.playbook, *message.run_ids)
        if run_id := message.run_id:
            owners = {"", message.source.name} if message.source else {""}
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
                if member.reflection_id in derived or self._is_meant(batch, member, selector)
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
