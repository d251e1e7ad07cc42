"""One judge for every fault: what the driver was told, what the topics hold, what the model was asked.

Each invariant has a name; a violation begins with it. The ledger judges batches and versions; here is what it
cannot know (acknowledgements, calls) or does not look at (the scan's nodes, replaying, offsets, open transactions).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import aiokafka

from combee.adapters.ports import Log, Record
from combee.core.batching import tree
from combee.core.log.dead_letters.subject import reflection_of
from combee.core.names import identity
from combee.core.playbook import versions
from combee.core.playbook.versions import empty
from combee.log.inspection.audit import audit
from combee_schemas import topics
from combee_schemas.base import Message
from combee_schemas.batch import Batch
from combee_schemas.dead_letter import DeadLetter
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Group, Partial, Update
from combee_schemas.topics import AnyTopic
from combee_schemas.trace import Trace
from support.ledger import read_all

GROUPS: Mapping[str, tuple[AnyTopic, ...]] = {
    "reflect": (topics.TRACES,),
    "shuffle": (topics.REFLECTIONS, topics.COMMANDS),
    "scan": topics.SCAN,
    "publish": (topics.UPDATES, topics.COMMANDS),
}
BOOKKEEPING = {"history_offset"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an acknowledgement said a record is."""

    topic: str
    partition: int
    offset: int


@dataclass(slots=True, kw_only=True)
class Dump:
    """Every record of the topics that was committed, decoded where it can be."""

    records: dict[str, list[tuple[Record, Message | None]]] = field(default_factory=dict)

    def messages(self, topic: AnyTopic) -> Iterator[tuple[Record, Message]]:
        """Yield what can be read of a topic, in the log's order per partition."""
        for record, message in self.records[topic.name]:
            if message is not None:
                yield record, message


async def dump(log: Log) -> Dump:
    """Read all topics from the start."""
    dumped = Dump()
    for topic in topics.TOPICS:
        rows = [(record, topic.read_or_none(record)) for record in await read_all(log, topic)]
        dumped.records[topic.name] = rows
    return dumped


async def violations(
    log: Log,
    bootstrap_servers: str | None = None,
    prefix: str = "",
    *,
    acked: Mapping[str, Place],
    repeated_calls: int = 0,
    allowed_repeats: int = 0,
    budget_tokens: int = 16_000,
) -> list[str]:
    """Return every violated invariant of a run that has come to rest; ``acked`` is by reflection id.

    Without ``bootstrap_servers`` (the log in memory) open transactions are not looked for.
    """
    dumped = await dump(log)
    ledger = await audit(log)
    wrong = [f"ledger: {problem}" for problem in ledger.violations]
    if ledger.lost or ledger.double or ledger.pending:
        wrong.append(f"fates: {ledger.lost} lost, {ledger.double} double, {ledger.pending} pending")
    wrong += _acknowledged(dumped, acked)
    wrong += _nodes(dumped)
    wrong += _replayed(dumped, budget_tokens)
    wrong += await unfinished(log, bootstrap_servers, prefix, dumped)
    if repeated_calls > allowed_repeats:
        wrong.append(f"calls: {repeated_calls} repeated, {allowed_repeats} were in flight at the faults")
    return wrong


def _acknowledged(dumped: Dump, acked: Mapping[str, Place]) -> Iterator[str]:
    """Yield acknowledged reflections that are in no batch and no dead letter, or not where they were said to be."""
    stored_ids = {
        Place(topic=record.topic, partition=record.partition, offset=record.offset): learned_id(message)
        for topic in (topics.TRACES, topics.REFLECTIONS)
        for record, message in dumped.messages(topic)
    }
    members = {
        m.reflection_id
        for _, message in dumped.messages(topics.BATCHES)
        if isinstance(message, Batch)
        for m in message.members
    }
    letters = [
        message for _, message in dumped.messages(topics.DEAD_LETTERS) if isinstance(message, DeadLetter)
    ]
    buried = {about[1] for about in map(reflection_of, letters) if about}
    for reflection_id, place in acked.items():
        if stored_ids.get(place) != reflection_id:
            yield f"acknowledged: {reflection_id} is not at {place}"
        if reflection_id not in members | buried:
            yield f"acknowledged: {reflection_id} is in no batch and no dead letter"


def learned_id(message: Message) -> str:
    """Return the id of the reflection that a message is, or will become."""
    match message:
        case Reflection():
            return message.reflection_id
        case Trace():
            return identity.reflection_id(message.playbook, message.trace_id)
    return ""


def _nodes(dumped: Dump) -> Iterator[str]:
    """Yield nodes without a result, with a foreign parent, or emitted twice with different content."""
    groups: dict[str, set[bytes]] = defaultdict(set)
    for record, message in dumped.messages(topics.SCAN[0]):
        if isinstance(message, Group):
            groups[message.node_id].add(record.value or b"")
    yield from (
        f"plan: group {node} was emitted with different content"
        for node, raw in groups.items()
        if len(raw) > 1
    )
    parents: dict[str, str] = {}
    for topic in topics.SCAN[1:]:
        for _, message in dumped.messages(topic):
            if (
                isinstance(message, Partial)
                and parents.setdefault(message.node_id, message.parent_id) != message.parent_id
            ):
                yield f"tree: node {message.node_id} feeds two parents"
    updates = {
        u.plan.batch_id: u
        for _, u in reversed(list(dumped.messages(topics.UPDATES)))
        if isinstance(u, Update)
    }
    for _, batch in dumped.messages(topics.BATCHES):
        if isinstance(batch, Batch) and batch.plan.batch_id in updates:
            yield from _tree(batch, updates[batch.plan.batch_id], set(groups), parents)


def _tree(batch: Batch, update: Update, groups: set[str], parents: Mapping[str, str]) -> Iterator[str]:
    degraded = update.node_id.startswith("degraded-")
    widths = batch.plan.widths
    for level, width in enumerate(batch.plan.widths[:-1]):
        for index in range(width):
            node = identity.node_id(batch.plan.batch_id, level, index)
            above = identity.node_id(
                batch.plan.batch_id, level + 1, tree.parent_index(batch.plan.widths, level, index)
            )
            if level == 0 and node not in groups:
                yield f"tree: batch {batch.plan.sequence} of {batch.plan.playbook} lacks group {index}"
            named = f"node {level}.{index} of batch {batch.plan.sequence} of {batch.plan.playbook}"
            below_root = tree.ancestor_index(widths, level, index, len(widths) - 2)
            if node not in parents and not degraded and below_root not in update.result.left_out:
                yield f"tree: {named} has no result"
            elif parents.get(node, above) != above:
                yield f"tree: {named} has a foreign parent"


def _replayed(dumped: Dump, budget_tokens: int) -> Iterator[str]:
    """Yield versions that do not follow from the one before and their batch's first update."""
    first: dict[tuple[str, int], Update] = {}
    for _, message in dumped.messages(topics.UPDATES):
        if isinstance(message, Update):
            first.setdefault((message.plan.playbook, message.plan.sequence), message)
    current: dict[str, Playbook] = {}
    for _, version in dumped.messages(topics.HISTORY):
        if not isinstance(version, Playbook):
            continue
        before = current.get(version.name, empty(version.name))
        current[version.name] = version
        update = first.get((version.name, version.batch_sequence))
        if version.origin == "batch" and update is not None:
            again = versions.fitted(
                versions.after_update(
                    before, update, budget_tokens=budget_tokens, now_ms=version.created_at_ms
                )
            )
            if again.model_dump(exclude=BOOKKEEPING) != version.model_dump(exclude=BOOKKEEPING):
                yield f"replay: version {version.version} of {version.name} does not follow from its update"


async def unfinished(
    log: Log, bootstrap_servers: str | None = None, prefix: str = "", dumped: Dump | None = None
) -> list[str]:
    """Return what is still on its way: uncommitted records, open transactions."""
    wrong = await _committed(log, dumped or await dump(log))
    return wrong + (await _transactions(bootstrap_servers, prefix) if bootstrap_servers else [])


async def _committed(log: Log, dumped: Dump) -> list[str]:
    """Return groups that have records left although the run is over."""
    wrong: list[str] = []
    for group, read in GROUPS.items():
        for topic in read:
            committed = await log.committed(group, topic.name)
            left = [r for r, _ in dumped.records[topic.name] if r.offset >= committed.get(r.partition, 0)]
            if left:
                place = f"{topic.name}[{left[0].partition}]@{left[0].offset}"
                wrong.append(f"offsets: {group} has {len(left)} records uncommitted, the first is {place}")
    return wrong


async def _transactions(bootstrap_servers: str, prefix: str) -> list[str]:
    """Return partitions whose readers are held up by a transaction that nobody ended."""
    ends: list[Mapping[str, int]] = []
    for isolation in ("read_committed", "read_uncommitted"):
        reader = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap_servers, isolation_level=isolation)
        await reader.start()
        try:
            names = sorted(name for name in await reader.topics() if name.startswith(f"{prefix}."))
            places: Sequence[aiokafka.TopicPartition] = [
                aiokafka.TopicPartition(name, number)
                for name in names
                for number in reader.partitions_for_topic(name) or ()
            ]
            offsets = await reader.end_offsets(places)
            ends.append({f"{tp.topic}[{tp.partition}]": at for tp, at in offsets.items()})
        finally:
            await reader.stop()
    stable, written = ends
    return [
        f"transaction: {name} is open from {stable[name]} on"
        for name in written
        if stable[name] < written[name]
    ]
