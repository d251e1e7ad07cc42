"""What nobody should have written, in every topic: it hurts only itself, and the next good record is processed."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from combee.adapters.ports import Outgoing
from combee.core.gate.policy import GatePolicy
from combee.core.names import identity
from combee.process.worker import manifest_cache
from combee.publish import publisher
from combee_schemas import topics
from combee_schemas.batch import Batch, Member
from combee_schemas.codec import encode
from combee_schemas.command import Command
from combee_schemas.dead_letter import Attempt, LetterId, attempt_headers
from combee_schemas.digests import spread
from combee_schemas.playbook import Playbook
from combee_schemas.scan import Group, GroupMember, NodeResult, Partial, Update
from combee_schemas.topics import TOPICS, AnyTopic
from support import ledger
from support.deployment import Deployment
from support.everything import everything, learn
from support.flat import flat
from support.ledger import NAME, dead_letters, outgoing, reflection

pytestmark = pytest.mark.usefixtures("quick_polls", "quick_publisher")
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
    deployment = Deployment(batch_size=5, fan_in=2, max_wait_s=5)
    async with everything(deployment):
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
            await without_scan.log.produce(outgoing(ledger.answered(number, "a")))
            without_scan.advance(30)
            assert without_scan.shuffler is not None
            await without_scan.shuffler.turn()
        await without_scan.until(lambda: not unseen(whole))
