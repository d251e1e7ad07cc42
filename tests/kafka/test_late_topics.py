"""A group whose leader could not see a topic when it dealt the partitions."""

import asyncio

from combee.adapters.kafka import KafkaAdmin
from combee.adapters.kafka.connection import Connection
from combee.adapters.kafka.consumer import KafkaConsumer
from combee.adapters.ports import TopicPartition
from support.broker import Broker

DEADLINE_S = 40.0
POLL_S = 0.2


async def test_a_topic_that_appears_later_is_dealt_then(kafka: Broker, topic_prefix: str) -> None:
    # The clients' own 5 minutes between two looks at the metadata do not end in time.
    dealt: list[frozenset[TopicPartition]] = []

    async def assigned(partitions: frozenset[TopicPartition]) -> None:
        dealt.append(partitions)

    connection = Connection(bootstrap_servers=kafka.bootstrap_servers, prefix=topic_prefix)
    admin, consumer = KafkaAdmin(connection), KafkaConsumer(connection, "late", assigned)
    first = frozenset({TopicPartition(topic="traces", partition=0)})
    await admin.create("traces", 1, 1, {})
    try:
        await consumer.start(["traces", "reflections"])
        async with asyncio.timeout(DEADLINE_S):
            while (
                first not in dealt
            ):  # where the broker's view of the first is late, too, nothing is dealt before
                await consumer.poll(POLL_S)
            await admin.create("reflections", 1, 1, {})
            while len(dealt[-1]) < 2:
                await consumer.poll(POLL_S)
    finally:
        await consumer.close()
