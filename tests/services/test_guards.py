"""What nobody should have written, in every topic: it hurts only itself, and the next good record is processed."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from combee.control.controller import Controller
from combee.core import identity
from combee.core.gate.policy import GatePolicy
from combee.core.sizing.policy import SizingPolicy
from combee.ports import Outgoing, Record
from combee.publish import publisher
from combee.worker import manifest_cache
from combee.worker.session import together
from combee_schemas import topics
from combee_schemas.base import Usage
from combee_schemas.batch import Batch, Member
from combee_schemas.codec import encode
from combee_schemas.command import Command
from combee_schemas.dead_letter import Attempt, LetterId, attempt_headers
from combee_schemas.digests import spread
from combee_schemas.playbook import Playbook
from combee_schemas.records import UNREAD_HEADER
from combee_schemas.scan import Group, GroupMember, NodeResult, Partial, Update
from combee_schemas.topics import TOPICS, AnyTopic
from combee_schemas.trace import Trace
from support import ledger
from support.deployment import Deployment
from support.flat import flat
from support.hostile import payloads
from support.ledger import NAME, dead_letters, outgoing, reflection

pytestmark = pytest.mark.usefixtures("quick_polls", "quick_publisher")

EXAMPLES = Path(__file__).parents[2] / "schemas" / "examples"
KEYS = (b"guards/hostile", None, b"\xff\xfe", b"")
BURIED: tuple[AnyTopic, ...] = (
    topics.TRACES,
    topics.REFLECTIONS,
    *topics.SCAN,
    topics.UPDATES,
    topics.COMMANDS,
    topics.VERDICTS,
)
"""Topics with a consumer that must account for every record; the others are views and histories."""


@pytest.fixture
def quick_publisher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an idle publisher look at what it holds at once."""
    monkeypatch.setattr(publisher, "POLL_S", 0.005)


def foreign(topic: AnyTopic) -> Iterator[bytes]:
    """Return good messages that do not belong into a topic."""
    examples = {path.parts[-3]: path for path in sorted(EXAMPLES.glob("*/v1/*.msgpack"))}
    for kind, path in examples.items():
        if kind != topic.message.type:
            yield path.read_bytes()


def poisons(topic: AnyTopic, partitions: int) -> list[Outgoing]:
    """Return every poison there is for a topic, over its partitions, under all kinds of keys."""
    values = [*payloads(topic.message).values(), *foreign(topic)]
    return [
        Outgoing(topic=topic.name, key=KEYS[n % len(KEYS)], value=value, partition=n % partitions)
        for n, value in enumerate(values)
    ]


@asynccontextmanager
async def everything() -> AsyncIterator[Deployment]:
    """Run all services, control too."""
    deployment = Deployment(batch_size=5, fan_in=2, max_wait_s=5)
    controller = Controller(deployment.log, deployment.clock, SizingPolicy())
    control = together(
        controller.session(asyncio.Event(), lambda: None),
        controller.playbooks.view.run(),
        controller.sizes.run(),
    )
    async with deployment.running():
        task = asyncio.create_task(control)
        try:
            yield deployment
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def learn(deployment: Deployment, first: int, count: int) -> None:
    """Publish reflections and a trace, and wait until all of them are in the playbook and all is committed."""
    before = ledger.applied(deployment.log)
    trace = Trace(trace_id=f"t-{first}", playbook=NAME, task="a task", answer=f"answer {first}", success=True)
    await deployment.log.produce(
        *(outgoing(reflection(n)) for n in range(first, first + count)),
        Outgoing(topic=topics.TRACES.name, key=b"t", value=encode(trace)),
    )

    def done() -> bool:
        deployment.advance(1)  # windows that the controller made larger close by time
        return ledger.applied(deployment.log) == before + count + 1 and not ledger.behind(deployment.log)

    await deployment.until(done)


def fingerprint(record: Record | Outgoing) -> tuple[str, bytes | None, str]:
    return record.topic, record.key, sha256(record.value or b"").hexdigest()


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
async def test_poison_hurts_only_itself(topic: AnyTopic) -> None:
    async with everything() as deployment:
        await learn(deployment, 0, 9)
        sent = poisons(topic, await deployment.log.partitions(topic.name))
        await deployment.log.produce(*sent)
        await learn(deployment, 100, 9)
    buried = Counter((one.origin_topic, one.key, one.sha256) for one in dead_letters(deployment.log))
    if topic in BURIED:
        readers = 2 if topic == topics.COMMANDS else 1  # each accounts for what it reads
        assert buried == Counter({fingerprint(one): readers for one in sent})
    else:
        assert not buried


@pytest.mark.parametrize("topic", BURIED, ids=lambda topic: topic.name)
async def test_headers_without_a_value_stop_nobody(topic: AnyTopic) -> None:
    poison = Outgoing(
        topic=topic.name, value=b"\xc1", partition=0, headers=(("x", None), (UNREAD_HEADER, None))
    )
    async with everything() as deployment:
        await deployment.log.produce(poison)
        await learn(deployment, 0, 9)
    assert {one.origin_topic for one in dead_letters(deployment.log)} == {topic.name}


# ---- well-formed, but of batches that nobody cut

FAR = 1_000_000


def plan(
    sequence: int = FAR, *, name: str = NAME, widths: tuple[int, ...] = (1,), **fields: Any
) -> dict[str, Any]:
    batch_id = identity.batch_id(name, sequence)
    own = {"batch_id": batch_id, "playbook": name, "sequence": sequence, "widths": widths}
    return {**own, "base_version": 0, "reflections": 1, "manifest_offset": FAR, **fields}


def update_of(one: dict[str, Any]) -> Outgoing:
    node = identity.node_id(one["batch_id"], 0, 0)
    return outgoing(flat(Update, plan=one, node_id=node, status="ok"))


def group_of(one: dict[str, Any]) -> Outgoing:
    node = identity.node_id(one["batch_id"], 0, 0)
    members = (GroupMember(offset=0, reflection=reflection(0)),)
    value = encode(flat(Group, plan=one, node_id=node, index=0, members=members))
    return Outgoing(topic=topics.SCAN[0].name, key=node.encode(), value=value, partition=0)


def partial_of(one: dict[str, Any], partitions: int) -> Outgoing:
    return child_of(flat(Group, plan=one, node_id="n", index=0, members=()), partitions)


def child_of(group: Group, partitions: int) -> Outgoing:
    """Return the result of a batch's first node."""
    node, parent = (identity.node_id(group.plan.batch_id, level, 0) for level in (0, 1))
    partial = Partial(
        plan=group.plan,
        manifest_offset=group.manifest_offset,
        node_id=node,
        parent_id=parent,
        level=0,
        index=0,
        result=NodeResult(status="ok"),
    )
    return Outgoing(
        topic=topics.SCAN[1].name,
        key=parent.encode(),
        value=encode(partial),
        partition=spread(parent, partitions),
    )


LOST_BASE: Mapping[str, Any] = {"base_version": 77}
FORGED: Mapping[str, Callable[[], Sequence[Outgoing]]] = {
    "an update of a far batch": lambda: [update_of(plan())],
    "many updates of far batches": lambda: [update_of(plan(FAR + n)) for n in range(50)],
    "an update that names another batch's manifest": lambda: [update_of(plan(manifest_offset=0))],
    "an update of a playbook that is not there": lambda: [update_of(plan(7, name="guards/none"))],
    "an update of a batch before the first": lambda: [update_of(plan(-5))],
    "a group on a version that is not there": lambda: [group_of(plan(**LOST_BASE))],
    "a group of a far batch": lambda: [group_of(plan())],
    "a group of a method that nobody has": lambda: [group_of(plan(method="nobody has it"))],
    "a partial of a method that nobody has": lambda: [
        partial_of(plan(widths=(1, 1), method="nobody has it"), 3)
    ],
    "a partial without siblings": lambda: [partial_of(plan(widths=(2, 1)), 3)],
    "a snapshot under a foreign key": lambda: [
        Outgoing(
            topic=topics.PLAYBOOKS.name,
            key=b"guards/other",
            value=encode(Playbook(name=NAME, version=FAR, batch_sequence=FAR)),
            partition=1,
        )
    ],
    "a partial on a version that is not there": lambda: [partial_of(plan(widths=(1, 1), **LOST_BASE), 3)],
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
async def test_what_belongs_to_no_batch_holds_nothing_up(
    forged: Callable[[], Sequence[Outgoing]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_cache, "ARRIVES_S", 0.02)
    async with everything() as deployment:
        await learn(deployment, 0, 9)
        await deployment.log.produce(*forged())
        await learn(deployment, 100, 9)


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
async def test_a_child_that_names_another_manifest_takes_no_sibling_s_place(
    first: bool,  # noqa: FBT001 - one of two orders
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(manifest_cache, "ARRIVES_S", 0.02)
    deployment = Deployment(batch_size=9)
    await deployment.log.produce(*(outgoing(reflection(n)) for n in range(9)))
    async with deployment.running(["shuffle"]):
        await deployment.until(lambda: len(ledger.records(deployment.log, topics.SCAN[0])) == 3)
    group = ledger.messages(deployment.log, topics.SCAN[0], Group)[0]
    forged = child_of(group.model_copy(update={"manifest_offset": FAR}), 3)
    deployment.model.gate = asyncio.Event()
    if first:
        await deployment.log.produce(forged)
    async with deployment.running():
        await deployment.until(lambda: deployment.model.calls == 3)
        if not first:
            await deployment.log.produce(child_of(group, 3), forged)
        await deployment.until(lambda: len(dead_letters(deployment.log)) == 1)
        deployment.model.gate.set()
        await deployment.until(lambda: ledger.applied(deployment.log) == 9)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    (letter,) = dead_letters(deployment.log)
    assert letter.value == forged.value


# ---- the map


def unseen(deployment: Deployment) -> set[tuple[str, str, str]]:
    """Return what the map says of the services and they have not done; what it does not say fails at once.

    Answers are recorded by the model that a worker gives scan (``compose``): see ``test_recorded.py``.
    """
    accesses = deployment.accesses.values()
    reads = {
        (one.role, "reads", topic.name) for one in accesses for topic in TOPICS if one.role in topic.read_by
    }
    writes = {
        (one.role, "writes", topic.name)
        for one in accesses
        for topic in TOPICS
        if one.role in topic.written_by and topic is not topics.ANSWERS
    }
    return (reads | writes) - {access for one in accesses for access in one.seen}


async def planned_on_a_lost_base(deployment: Deployment) -> Sequence[Outgoing]:
    """Return a manifest and its group whose base version has to be looked for in history."""
    name = "guards/lost"
    partition = await deployment.log.partition_for(topics.BATCHES.name, name.encode())
    offset = (await deployment.log.ends(topics.BATCHES.name))[partition]
    group = group_of(plan(1, name=name, manifest_offset=offset, **LOST_BASE))
    header = topics.GROUPS.read(group).plan
    members = (Member(offset=0, reflection_id="r-0"),)
    return topics.BATCHES.record(Batch(plan=header, seed=1, members=members, copies=1)), group


GIVEN_UP = {("shuffle", "writes", "updates")}
LOOKED_UP = {("publish", "reads", "history"), ("publish", "reads", "reflections")}
"""An old version that publish does not remember, and a reflection of which no copy got through."""


async def test_the_services_read_and_write_what_the_map_says_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(manifest_cache, "ARRIVES_S", 0.02)
    whole = Deployment(batch_size=29, fan_in=2, gates=GatePolicy(judges=("approve",)))
    # So that scan finds something unfinished at its start, and looks for what was answered.
    await whole.log.produce(group_of(plan()))
    async with whole.running():
        await learn(whole, 0, 28)
        astray = 1 - await whole.log.partition_for(topics.REFLECTIONS.name, NAME.encode())
        commands = (
            Command(command_id="p", playbook=NAME, kind="promote", label="production", version=1),
            Command(command_id="i", playbook=NAME, kind="import"),
            Command(command_id="r", playbook=NAME, kind="rollback", version=1),
        )
        await whole.log.produce(
            replace(outgoing(reflection(200)), partition=astray),
            *map(outgoing, commands),
            *(Outgoing(topic=topic.name, value=b"\xc1", partition=0) for topic in BURIED),
            *await planned_on_a_lost_base(whole),
            replace(
                outgoing(reflection(0)),
                headers=attempt_headers(Attempt(number=1, letter=LetterId(partition=0, offset=0))),
            ),
            update_of(plan()),
            # Its sibling never comes, or takes longer than a manifest may.
            partial_of(plan(widths=(2, 1)), 3),
        )

        def done() -> bool:
            whole.advance(1)  # an update of a far batch is held back until its manifest is overdue
            return unseen(whole) <= GIVEN_UP | LOOKED_UP

        with suppress(TimeoutError):
            await whole.until(done)
        assert unseen(whole) <= GIVEN_UP | LOOKED_UP
    async with whole.running(["publish"]):
        await whole.log.produce(
            outgoing(Command(command_id="again", playbook=NAME, kind="rollback", version=1))
        )
        await whole.until(lambda: LOOKED_UP - unseen(whole) >= {("publish", "reads", "history")})
    without_scan = Deployment(batch_timeout_s=300, retries=0)
    without_scan.accesses = whole.accesses
    async with without_scan.running(["shuffle", "publish"]):
        await without_scan.log.produce(*(outgoing(reflection(n)) for n in range(10)))
        await without_scan.until(lambda: bool(ledger.batches(without_scan.log)))
        for number in range(100, 130):
            # A sign that the model answers others: only then is a batch without a version given up.
            await without_scan.log.produce(outgoing(reflection(number, "a", usage=Usage(calls=1))))
            without_scan.advance(30)
            assert without_scan.shuffler is not None
            await without_scan.shuffler.turn()
        await without_scan.until(lambda: not unseen(whole))
