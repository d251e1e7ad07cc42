"""What a client on Kafka publishes declares its source, and proves it where a secret is given."""

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Record, TopicPartition
from combee.core.names.sources import KnownSources, Signer, with_secret
from combee.sdk.transport import LogTransport
from combee_schemas import topics
from combee_schemas.base import Source
from combee_schemas.reflection import Reflection
from support.clock import ManualClock

KNOWN = KnownSources(checks={"shop": ("secret", with_secret(b"the secret"))})


async def sent(signer: Signer | None, source: Source | None = None) -> Record:
    log = MemoryLog(ManualClock(), partitions=1)
    lesson = Reflection(reflection_id="r-1", playbook="p", key_insight="a", source=source)
    await LogTransport(log, signer).send([lesson])
    place = TopicPartition(topic=topics.REFLECTIONS.name, partition=0)
    (record,) = [record async for record in log.read(place, 0)]
    return record


def verified(record: Record) -> Source | None:
    source = topics.REFLECTIONS.read(record).source
    effective = KNOWN.effective(record.topic, record.value or b"", record.headers, source)
    assert not effective.is_forged
    return effective.source


async def test_a_client_with_a_secret_proves_its_name() -> None:
    record = await sent(Signer(name="shop", secret=b"the secret"))
    assert verified(record) == Source(name="shop", proven="secret")


async def test_a_client_without_one_declares_it() -> None:
    assert verified(await sent(Signer(name="shop"))) == Source(name="shop")


async def test_a_client_without_a_name_sends_what_it_is_given() -> None:
    record = await sent(None, Source(name="desk"))
    assert (verified(record), record.headers) == (Source(name="desk"), ())
