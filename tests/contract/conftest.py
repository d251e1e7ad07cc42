"""The logs that must behave alike."""

from collections.abc import AsyncIterator

import pytest

from combee.adapters.kafka import KafkaAdmin, KafkaLog
from combee.adapters.kafka.connection import Connection
from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Log
from combee_schemas import topics
from support.clock import ManualClock

PARTITIONS = 3
USED = {
    topics.REFLECTIONS.name: PARTITIONS,
    topics.UPDATES.name: PARTITIONS,
    topics.LABELS.name: 1,
    topics.HISTORY.name: 1,
}


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest) -> str | None:
    """Return the brokers' addresses; None for the log in memory. Not async: brokers start in loops of their own."""
    if request.param == "memory":
        return None
    address: str = request.getfixturevalue("kafka").bootstrap_servers
    return address


@pytest.fixture
async def log(servers: str | None, topic_prefix: str) -> AsyncIterator[Log]:
    if servers is None:
        yield MemoryLog(ManualClock(), partitions=PARTITIONS)
        return
    connection = Connection(bootstrap_servers=servers, prefix=topic_prefix)
    admin = KafkaAdmin(connection)
    for name, count in USED.items():
        await admin.create(name, count, 1, {"retention.ms": "-1"})  # old records stay
    await admin.wait_created(USED)
    on_kafka = KafkaLog(connection)
    yield on_kafka
    await on_kafka.close()
