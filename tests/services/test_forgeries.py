"""Results that nobody planned are refused with a reason, and the honest ones beside them have their effect."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from combee.adapters.ports import Outgoing
from combee.core.names import identity
from combee.process.worker import manifest_cache
from combee.publish import publisher
from combee_schemas import topics
from combee_schemas.scan import Group, NodeResult, Partial, Planned, Seen, Update
from combee_schemas.topics import AnyTopic
from support import ledger
from support.deployment import Deployment
from support.forgeries import FORGERIES, INVENTED, INVENTION, Forge
from support.ledger import dead_letters, lessons, outgoing, reflection

pytestmark = pytest.mark.usefixtures("quick_polls", "quick")

COUNT = 9
TOPIC_OF: Mapping[type[Planned], AnyTopic] = {
    Group: topics.GROUPS,
    Partial: topics.PARTIALS[0],
    Update: topics.UPDATES,
}
CASES = [
    pytest.param(kind, forge, reason, id=f"{kind.type}: {name}")
    for kind, forgeries in FORGERIES.items()
    for name, (forge, reason) in forgeries.items()
]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no manifest for long, and look at what is held at once."""
    monkeypatch.setattr(manifest_cache, "ARRIVES_S", 0.02)
    monkeypatch.setattr(publisher, "POLL_S", 0.005)


def honest(deployment: Deployment, kind: type[Planned]) -> Planned:
    """Return a record of a batch that waits for its model, as the services would write it."""
    group = ledger.messages(deployment.log, topics.GROUPS, Group)[0]
    plan, where = group.plan, group.manifest_offset
    if kind is Group:
        return group
    seen = tuple(
        Seen(reflection_id=member.reflection.reflection_id, offset=member.offset) for member in group.members
    )
    invention = INVENTION.model_copy(update={"evidence": (seen[0].reflection_id,)})
    result = NodeResult(status="ok", operations=(invention,), seen=seen)
    leaf, root = identity.node_id(plan.batch_id, 0, 0), identity.node_id(plan.batch_id, 1, 0)
    if kind is Update:
        return Update(plan=plan, manifest_offset=where, node_id=root, result=result)
    return Partial(
        plan=plan, manifest_offset=where, node_id=leaf, parent_id=root, level=0, index=0, result=result
    )


def sent(deployment: Deployment, record: Planned) -> Outgoing:
    """Return a record as it is written where its kind belongs."""
    topic = TOPIC_OF[type(record)]
    count = len(deployment.log._store.partitions(topic.name))
    return replace(topic.record(record), partition=topic.place(record, count))


@pytest.mark.parametrize(("kind", "forge", "reason"), CASES)
async def test_a_forged_record_is_dead_lettered_and_the_honest_ones_go_on(
    kind: type[Planned], forge: Forge, reason: str
) -> None:
    """It comes first, so that it would win were it believed."""
    deployment = Deployment(batch_size=COUNT)
    await deployment.log.produce(*(outgoing(reflection(n)) for n in range(COUNT)))
    deployment.model.gate.clear()
    async with deployment.running():
        await deployment.until(lambda: deployment.model.calls == 3)
        record = sent(deployment, forge(honest(deployment, kind)))
        await deployment.log.produce(record)

        def refused() -> bool:
            deployment.advance(0.1)  # an update whose manifest cannot be seen is held back for a moment
            return len(dead_letters(deployment.log)) == 1

        await deployment.until(refused)
        deployment.model.gate.set()
        await deployment.until(lambda: ledger.applied(deployment.log) == COUNT)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    (letter,) = dead_letters(deployment.log)
    assert (letter.origin_topic, letter.value) == (record.topic, record.value)
    assert reason in letter.reason
    contents = {entry.content for entry in ledger.latest(deployment.log).entries}
    assert contents == lessons(range(COUNT))


@pytest.mark.parametrize("kind", [Partial, Update])
async def test_who_may_write_updates_can_forge_a_result_and_a_forged_partial_invents_no_lesson(
    kind: type[Planned],
) -> None:
    """The limit of the check, and why the honest record of these tests is one: rights stop this, nothing else."""
    deployment = Deployment(batch_size=COUNT)
    await deployment.log.produce(*(outgoing(reflection(n)) for n in range(COUNT)))
    deployment.model.gate.clear()
    async with deployment.running():
        await deployment.until(lambda: deployment.model.calls == 3)
        await deployment.log.produce(sent(deployment, honest(deployment, kind)))
        deployment.model.gate.set()
        await deployment.until(lambda: ledger.applied(deployment.log) == COUNT)
    contents = {entry.content for entry in ledger.latest(deployment.log).entries}
    assert contents == ({INVENTED} if kind is Update else lessons(range(COUNT)))
    assert dead_letters(deployment.log) == []
