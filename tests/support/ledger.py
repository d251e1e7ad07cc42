"""What a log holds, and whether it adds up: the promises of the design, checked from the topics alone."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Log, Outgoing, Record, TopicPartition
from combee.core.batching import tree
from combee.core.batching.plan import deal_batch
from combee.core.names.identity import node_id, reflection_id
from combee.log.inspection.dead_letters import StoredLetter, letters
from combee_schemas import topics
from combee_schemas.base import Message, Usage
from combee_schemas.batch import Batch
from combee_schemas.codec import CodecError, decode
from combee_schemas.command import Command
from combee_schemas.dead_letter import DeadLetter
from combee_schemas.gate import Verdict
from combee_schemas.playbook import AppliedBatch, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Group, Partial, Update
from combee_schemas.topics import AnyTopic

M = TypeVar("M", bound=Message)
NAME = "support/refunds"


def reflection(number: int, playbook: str = NAME, **fields: object) -> Reflection:
    """Return a reflection whose lesson nobody else has."""
    return Reflection.model_validate(
        {"reflection_id": f"r-{number}", "playbook": playbook, "key_insight": f"lesson {number}", **fields}
    )


def answered(number: int, playbook: str) -> Reflection:
    """Return a reflection that *reflect* made: a sign that the model answers."""
    run = f"t-{number}"
    made = {"reflection_id": reflection_id(playbook, run), "trace_id": run, "usage": Usage(calls=1)}
    return reflection(number, playbook, **made)


def lessons(numbers: Iterable[int]) -> set[str]:
    """Return what these reflections teach."""
    return {f"lesson {number}" for number in numbers}


def outgoing(message: Reflection | Command | Update | Verdict) -> Outgoing:
    """Return the record of a message."""
    return next(topic for topic in topics.TOPICS if topic.message is type(message)).record(message)


def records(log: MemoryLog, topic: AnyTopic) -> list[Record]:
    """Return every visible record of a topic, partition by partition."""
    return [
        r
        for partition in log._store.partitions(topic.name)
        for r in partition.records(partition.first, partition.stable)
    ]


async def read_all(log: Log, topic: AnyTopic) -> list[Record]:
    """Return every committed record of a topic on any log, partition by partition."""
    sources = [
        TopicPartition(topic=topic.name, partition=at) for at in range(await log.partitions(topic.name))
    ]
    return [record for source in sources async for record in log.read(source, 0)]


def messages(log: MemoryLog, topic: AnyTopic, kind: type[M]) -> list[M]:
    """Return what can be read of a topic."""
    decoded = (_decoded(record.value, kind) for record in records(log, topic))
    return [message for message in decoded if message is not None]


@lru_cache(maxsize=4096)  # conditions look at the same records again and again
def _decoded(value: bytes | None, kind: type[M]) -> M | None:
    try:
        return decode(value, kind)
    except CodecError:
        return None


def versions(log: MemoryLog, name: str = NAME) -> list[Playbook]:
    """Return a playbook's history."""
    return [version for version in messages(log, topics.HISTORY, Playbook) if version.name == name]


def latest(log: MemoryLog, name: str = NAME) -> Playbook:
    """Return the newest snapshot."""
    return [version for version in messages(log, topics.PLAYBOOKS, Playbook) if version.name == name][-1]


def batch_of(version: Playbook) -> AppliedBatch:
    """Return the batch that made a version."""
    assert version.batch is not None
    return version.batch


def batches(log: MemoryLog, name: str = NAME) -> list[Batch]:
    """Return a playbook's manifests."""
    return [batch for batch in messages(log, topics.BATCHES, Batch) if batch.plan.playbook == name]


def dead_letters(log: MemoryLog) -> list[DeadLetter]:
    """Return every dead letter."""
    return messages(log, topics.DEAD_LETTERS, DeadLetter)


async def stored_letters(log: Log) -> list[StoredLetter]:
    """Return every dead letter with its place in the log, as commands take them."""
    return [letter async for letter in letters(log, lambda _read, _total: None)]


def applied(log: MemoryLog, name: str = NAME) -> int:
    """Return how many reflections are in applied batches."""
    return sum(version.reflections for version in versions(log, name))


def answered_calls(log: MemoryLog) -> int:
    """Return how many model calls of the scan have their result in the log."""
    results = _results(log)
    below: dict[str, int] = {}
    for message in results.values():
        if isinstance(message, Partial):
            below[message.parent_id] = below.get(message.parent_id, 0) + message.result.usage.calls
    return sum(message.result.usage.calls - below.get(node, 0) for node, message in results.items())


def planned_calls(log: MemoryLog) -> int:
    """Return how many calls the manifests ask for: leaves, and nodes with more than one child."""
    return sum(
        batch.plan.widths[0]
        + sum(
            len(tree.child_indices(batch.plan.widths, level, index)) > 1
            for level in range(1, len(batch.plan.widths))
            for index in range(batch.plan.widths[level])
        )
        for batch in messages(log, topics.BATCHES, Batch)
    )


def _results(log: MemoryLog) -> dict[str, Partial | Update]:
    results: dict[str, Partial | Update] = {}
    for topic in topics.SCAN[1:]:
        for partial in messages(log, topic, Partial):
            results.setdefault(partial.node_id, partial)
    for update in messages(log, topics.UPDATES, Update):
        results.setdefault(update.node_id, update)
    return results


def check(log: MemoryLog, published: Mapping[str, Sequence[Reflection]]) -> None:
    """Assert every promise that holds once all is quiet: ``published`` by playbook."""
    for name, reflections in published.items():
        _check_batches(log, name, reflections)
        _check_versions(log, name)
    _check_nodes(log)
    _check_quiet(log)


def _check_batches(log: MemoryLog, name: str, reflections: Sequence[Reflection]) -> None:
    cut = batches(log, name)
    assert [made.plan.sequence for made in cut] == list(range(1, len(cut) + 1))
    members = Counter(member.reflection_id for batch in cut for member in batch.members)
    assert members == Counter({reflection.reflection_id: 1 for reflection in reflections}), (
        "lost or counted twice"
    )
    groups = {(g.plan.batch_id, g.index): g for g in messages(log, topics.SCAN[0], Group)}
    for batch in cut:
        dealt = deal_batch(batch)
        assert len(dealt) == batch.plan.widths[0]
        for index, expected in enumerate(dealt):
            offsets = [member.offset for member in groups[batch.plan.batch_id, index].members]
            assert offsets == [member.offset for member in expected]
            assert len(set(offsets)) == len(offsets), "two copies in one group"


def _check_versions(log: MemoryLog, name: str) -> None:
    history = versions(log, name)
    assert [version.version for version in history] == list(range(1, len(history) + 1))
    made = [version.batch_sequence for version in history if version.origin == "batch"]
    assert made == [batch.plan.sequence for batch in batches(log, name)], (
        "a batch has not exactly one version"
    )
    assert latest(log, name).entries == history[-1].entries
    snapshots = [
        version.version for version in messages(log, topics.PLAYBOOKS, Playbook) if version.name == name
    ]
    assert snapshots == [version.version for version in history]


def _check_nodes(log: MemoryLog) -> None:
    results = _results(log)
    for message in results.values():
        if isinstance(message, Partial):
            assert message.node_id == node_id(message.plan.batch_id, message.level, message.index)
            assert message.parent_id in results, "a node feeds nobody"


def _check_quiet(log: MemoryLog) -> None:
    for topic in topics.TOPICS:
        for number, partition in enumerate(log._store.partitions(topic.name)):
            assert not partition.open, f"open transaction in {topic.name}[{number}]"


LEARNING: Mapping[str, Sequence[AnyTopic]] = {
    "shuffle": (topics.REFLECTIONS, topics.COMMANDS),
    "scan": topics.SCAN,
    "publish": (topics.UPDATES, topics.COMMANDS, topics.VERDICTS),
    "reflect": (topics.TRACES,),
}


def behind(
    log: MemoryLog, reads: Mapping[str, Sequence[AnyTopic]] = LEARNING
) -> dict[tuple[str, str, int], tuple[int, int]]:
    """Return per group and input partition the committed offset and the end, where they differ."""
    offsets: dict[tuple[str, str, int], tuple[int, int]] = {}
    for group, inputs in reads.items():
        committed = {(at.topic, at.partition): o for at, o in log._store.committed.get(group, {}).items()}
        for topic in inputs:
            for number, partition in enumerate(log._store.partitions(topic.name)):
                at = committed.get((topic.name, number), partition.first)
                if at != partition.end:
                    offsets[group, topic.name, number] = (at, partition.end)
    return offsets
