"""What a client may not do on a broker that asks for rights, and what it does all the same."""

import asyncio
from collections.abc import Iterator, Mapping

import pytest

from combee.adapters.kafka import KafkaAdmin, KafkaLog
from combee.core import layout
from combee.ports import FatalError, Outgoing
from combee.runtime.clock import SystemClock
from combee.runtime.live import Live
from combee_schemas import topics
from support.secured import DESCRIBE, GROUP, READ, TOPIC, Secured, secured
from support.waiting import until


@pytest.fixture(scope="module")
def guarded(machine_env: dict[str, str]) -> Iterator[Secured]:
    with secured(machine_env) as running:
        yield running


async def created(guarded: Secured, prefix: str) -> Mapping[str, int]:
    """Create every topic; the reader may read all of them."""
    admin = KafkaAdmin(guarded.as_master(prefix))
    wanted = {one.topic.name: one.partitions for one in layout.wanted(2, 3)}
    for name, partitions in wanted.items():
        await admin.create(name, partitions, 1, {})
    await guarded.allow(TOPIC, prefix, READ, DESCRIBE)
    await guarded.allow(GROUP, prefix, DESCRIBE)
    await admin.wait_created(wanted)
    return wanted


async def test_partitions_are_counted_without_the_right_to_write(guarded: Secured, topic_prefix: str) -> None:
    wanted = await created(guarded, topic_prefix)
    log = KafkaLog(guarded.as_reader(topic_prefix))
    try:
        assert {name: await log.partitions(name) for name in wanted} == wanted
        assert await log.ends(topics.PLAYBOOKS.name) == {0: 0, 1: 0}
        with pytest.raises(FatalError, match="ClusterAuthorizationFailed"):
            await log.produce(Outgoing(topic=topics.REFLECTIONS.name, value=b"no"))
    finally:
        await log.close()


async def test_a_topic_without_rights_is_named_in_the_live_picture_until_they_are_granted(
    guarded: Secured, topic_prefix: str
) -> None:
    letters, batches = topics.DEAD_LETTERS.name, topics.BATCHES.name
    await created(guarded, topic_prefix)
    await guarded.deny(TOPIC, f"{topic_prefix}.{letters}", READ)
    master, log = KafkaLog(guarded.as_master(topic_prefix)), KafkaLog(guarded.as_reader(topic_prefix))
    live = Live(log, SystemClock(), batch_size=4)
    task = asyncio.create_task(live.run())

    def unreadable() -> Mapping[str, str]:
        return live.picture.snapshot(0).unreadable

    try:
        await live.wait_current(30)
        await until(lambda: unreadable().keys() == {letters})
        await guarded.lift(TOPIC, f"{topic_prefix}.{letters}", READ)
        await until(lambda: not unreadable())
        await guarded.deny(TOPIC, f"{topic_prefix}.{batches}", READ)
        await until(lambda: "TopicAuthorizationFailed" in unreadable().get(batches, ""))
        await master.produce(Outgoing(topic="reflections", key=b"p", value=b"a reflection"))
        await until(lambda: [one.name for one in live.picture.snapshot(0).playbooks] == ["p"])
        await guarded.lift(TOPIC, f"{topic_prefix}.{batches}", READ)
        await until(lambda: not unreadable())
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await log.close()
        await master.close()
