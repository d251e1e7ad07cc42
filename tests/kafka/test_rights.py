"""Every role works with the rights that ``combee topics acls`` shows, and with none beyond them."""

import asyncio
import json
from pathlib import Path

import pytest

from combee import AsyncClient
from combee.adapters.kafka import KafkaLog
from combee.adapters.kafka.connection import Connection
from combee.adapters.ports import CombeeError, Outgoing
from combee.core.log import rights
from combee.log.history import all_labels
from combee_schemas.playbook import Label
from combee_schemas.topics import TOPICS
from support.broker import Broker
from support.cli import Ended, combee
from support.granted import (
    GATED,
    PREFIX,
    TABLE,
    WAYS,
    Row,
    connection_of,
    expected,
    grant_all,
    granted_kafka,
    is_refused,
    of_role,
    read_table,
    said,
    services,
    use,
    verb,
    write_table,
)
from support.secured import SecuredKafka

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

NESTED = "combee.b"
INTRUDER, TENANT = "intruder", "tenant-b"
ACCEPTED_S = 60.0
RUNS = Path(__file__).parents[2] / "examples" / "runs.jsonl"


async def reaches_nothing(secured: SecuredKafka, outsider: str, operation: str, topic: str) -> bool:
    """Return whether somebody without any right fails; for them the broker has no such topic."""
    log = KafkaLog(
        Connection.secured(
            secured.credentials(outsider), bootstrap_servers=secured.bootstrap_servers, prefix=PREFIX
        )
    )
    try:
        await use(log, operation, topic)
    except CombeeError:
        return True
    finally:
        await log.close()
    return False


async def something_everywhere(secured: SecuredKafka) -> None:
    """Nobody is refused where there is nothing to read."""
    log = KafkaLog(connection_of(secured, "operators"))
    await log.produce(*(Outgoing(topic=topic.name, partition=0, key=b"-", value=b"-") for topic in TOPICS))
    await log.close()


async def seen(secured: SecuredKafka, role: str) -> list[Row]:
    """Return for every topic whether a role may read and write it; what it writes is of no use to anybody."""
    log = KafkaLog(connection_of(secured, role))
    try:
        return [
            Row(
                role=role,
                shows=WAYS[role],
                topic=topic.name,
                read=said(await is_refused(log, "read", topic.name)),
                write=said(await is_refused(log, "write", topic.name)),
            )
            for topic in TOPICS
        ]
    finally:
        await log.close()


# TLS waits 30 s for the peer's farewell, and here the broker ends before: the loop closes what is left.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_every_role_works_with_exactly_its_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    async with granted_kafka(tmp_path, INTRUDER, TENANT) as secured:
        await grant_all(secured, rights.granted(dict.fromkeys(rights.ROLES, f"User:{TENANT}"), NESTED))
        await verb(secured, "operators", tmp_path, "topics", "create")
        async with services(secured, tmp_path, "0.05") as model:
            learn = ("learn", str(RUNS), "--playbook", "support/refunds")
            await verb(secured, "operators", tmp_path, *learn, **model)
            for name, value in of_role(secured, "agents").items():
                monkeypatch.setenv(name, value)
            version = await publish_and_read()
            ledger = await verb(secured, "operators", tmp_path, "ledger", "--json")
            playbook = tmp_path / "one.txt"
            playbook.write_text("## OTHERS\n[misc-00001] helpful=0 harmful=0 :: be kind\n")
            await verb(secured, "operators", tmp_path, "playbook", "import", f"{GATED}one", str(playbook))
            await accepted(secured, f"{GATED}one")
            for arguments in (
                ("playbook", "rollback", "support/refunds", "1"),
                ("status", "--json"),
                ("topics", "check"),
                ("dlq", "list"),
            ):
                await verb(secured, "operators", tmp_path, *arguments)
        await something_everywhere(secured)
        parts = await asyncio.gather(*(seen(secured, role) for role in rights.ROLES))
        rows = [row for part in parts for row in part]
        attempts = [
            reaches_nothing(secured, outsider, operation, topic)
            for outsider in (INTRUDER, TENANT)
            for operation, topic in (("write", "commands"), ("read", "reflections"))
        ]
        outside = await asyncio.gather(*attempts)
    assert version >= 1
    assert json.loads(ledger.out)["violations"] == []
    assert all(outside)
    assert rows == expected()
    if folder := pytestconfig.getoption("--fault-results"):
        write_table(folder / TABLE, rows)
    assert read_table() == rows, "docs/results/tables/rights.csv is old: --fault-results docs/results/tables"


def is_read(label: Label, name: str) -> bool:
    return (label.playbook, label.label) == (name, "production") and label.version > 0


async def accepted(secured: SecuredKafka, name: str) -> None:
    """Wait until the judge has accepted a playbook's first version."""
    log = KafkaLog(connection_of(secured, "operators"))
    try:
        async with asyncio.timeout(ACCEPTED_S):
            while not [each for each in await all_labels(log) if is_read(each, name)]:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.2)
    finally:
        await log.close()


async def publish_and_read() -> int:
    async with AsyncClient() as client:
        view = await client.playbook("support/refunds")
        client.publish(playbook="support/refunds", key_insight="Say when a refund arrives.")
        delivery = await client.flush()
        assert (delivery.delivered, delivery.is_complete) == (1, True)
        return view.version


@pytest.mark.timeout(120)
async def test_a_prefix_within_anothers_is_refused_before_anything_is_made(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    async def create(prefix: str) -> Ended:
        env = {"COMBEE_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "COMBEE_TOPIC_PREFIX": prefix}
        return await combee("topics", "create", data_dir=tmp_path, **env)

    assert (await create(topic_prefix)).code == 0
    refused = await create(f"{topic_prefix}.b")
    assert (refused.code, f"choose another COMBEE_TOPIC_PREFIX, such as {topic_prefix}-b" in refused.err) == (
        2,
        True,
    )
    assert (await create(topic_prefix)).code == 0


@pytest.mark.timeout(120)
async def test_a_prefix_around_anothers_is_refused_too(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    env = {"COMBEE_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
    inner = await combee(
        "topics", "create", data_dir=tmp_path, COMBEE_TOPIC_PREFIX=f"{topic_prefix}.b", **env
    )
    refused = await combee("topics", "create", data_dir=tmp_path, COMBEE_TOPIC_PREFIX=topic_prefix, **env)
    assert (inner.code, refused.code) == (0, 2)
    assert f"{topic_prefix} and {topic_prefix}.b overlap" in refused.err
