"""A service does not start on topics that would lose data; it says what to do."""

from pathlib import Path

import pytest

from combee.adapters.kafka import KafkaAdmin
from combee.assembly import backends
from combee.process.settings.loading import load_settings
from combee_schemas import topics
from support.broker import Broker
from support.cli import Ended, combee


async def combee_on(kafka: Broker, prefix: str, folder: Path, *verb: str) -> Ended:
    servers = ("--bootstrap-servers", kafka.bootstrap_servers)
    return await combee(*verb, *servers, data_dir=folder, COMBEE_TOPIC_PREFIX=prefix)


async def test_worker_refuses_missing_topics(kafka: Broker, topic_prefix: str, tmp_path: Path) -> None:
    ended = await combee_on(kafka, topic_prefix, tmp_path, "worker", "publish")

    assert ended.code == 2
    assert f"{topic_prefix}.updates is missing: run 'combee topics create'" in ended.err
    assert "Traceback" not in ended.err


async def test_worker_refuses_another_number_of_partitions(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    made = load_settings(bootstrap_servers=kafka.bootstrap_servers, topic_prefix=topic_prefix, partitions=2)
    await backends.create_topics(made, backends.connection(made, kafka.bootstrap_servers))
    ended = await combee_on(kafka, topic_prefix, tmp_path, "worker", "publish")

    assert ended.code == 2
    assert f"{topic_prefix}.updates has 2 partitions instead of 4: set COMBEE_PARTITIONS=2" in ended.err


async def test_more_replicas_than_brokers_are_refused_with_the_setting(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    servers = ("--bootstrap-servers", kafka.bootstrap_servers)
    settings = {"COMBEE_TOPIC_PREFIX": topic_prefix, "COMBEE_REPLICATION_FACTOR": "7"}
    ended = await combee("topics", "create", *servers, data_dir=tmp_path, **settings)

    assert ended.code == 2
    assert "Change COMBEE_REPLICATION_FACTOR." in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    "verb", [("worker", "shuffle"), ("replay", "support/refunds", "--to", "elsewhere"), ("topics", "create")]
)
async def test_nothing_starts_on_a_prefix_of_another_format_and_the_remedy_is_named(
    kafka: Broker, topic_prefix: str, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    settings = load_settings(bootstrap_servers=kafka.bootstrap_servers, topic_prefix=topic_prefix)
    connection = backends.connection(settings, kafka.bootstrap_servers)
    await backends.create_topics(settings, connection)
    await KafkaAdmin(connection).delete(topics.FORMAT_MARK)
    ended = await combee_on(kafka, topic_prefix, tmp_path, *verb)

    assert ended.code == 2
    assert (
        f"there is no {topic_prefix}.{topics.FORMAT_MARK}): start the release that wrote it, or" in ended.err
    )
    assert "Traceback" not in ended.err


async def test_the_ledger_on_topics_of_an_older_version_names_the_remedy(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    settings = load_settings(bootstrap_servers=kafka.bootstrap_servers, topic_prefix=topic_prefix)
    connection = backends.connection(settings, kafka.bootstrap_servers)
    await backends.create_topics(settings, connection)
    await KafkaAdmin(connection).delete(topics.ERASURES.name)
    ended = await combee_on(kafka, topic_prefix, tmp_path, "ledger")

    assert ended.code == 2
    assert f"{topic_prefix}.erasures is missing: run 'combee topics create'" in ended.err
    assert "Traceback" not in ended.err


async def test_worker_without_a_broker_names_the_choices(tmp_path: Path) -> None:
    ended = await combee("worker", "scan", data_dir=tmp_path)

    assert ended.code == 2
    assert "COMBEE_BOOTSTRAP_SERVERS" in ended.err
    assert "combee up" in ended.err
