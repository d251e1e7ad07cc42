"""Writers of transactions, under which a test kills the broker."""

from contextlib import suppress
from random import Random

from combee.adapters.kafka import KafkaLog
from combee.adapters.ports import CombeeError, Outgoing

TOPIC, PARTITIONS, WRITERS, EACH = "data", 16, 8, 5


async def write(log: KafkaLog, name: str, counts: dict[str, int]) -> None:
    """Write to some partitions in one transaction after another, as long as the broker lives; count them."""
    transactor = await log.transactor(name)
    rng = Random(name)
    try:
        with suppress(CombeeError):
            while True:
                async with transactor.transaction() as transaction:
                    places = rng.sample(range(PARTITIONS), 4)
                    await transaction.send(
                        *(Outgoing(topic=TOPIC, partition=at, value=b"x") for at in places)
                    )
                counts[name] += 1
    finally:
        with suppress(CombeeError):  # what was cancelled may end as the broker's death ends it
            await transactor.close()
