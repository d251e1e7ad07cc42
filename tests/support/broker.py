"""One real Kafka for a test session: embedded, in a container, or one that runs already."""

import asyncio
import gc
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import pytest

from combee.adapters.embedded_kafka import EmbeddedKafka
from combee.adapters.kafka import is_ready

KINDS = ("embedded", "testcontainers", "external")
# Compaction tests must not wait for minutes.
FOR_TESTS = {"log.cleaner.backoff.ms": "500", "log.retention.check.interval.ms": "1000"}


class Broker(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Running:
    bootstrap_servers: str


@contextmanager
def broker(kind: str, *, env: Mapping[str, str], bootstrap_servers: str | None) -> Iterator[Broker]:
    if kind == "external":
        with external(bootstrap_servers or env.get("COMBEE_BOOTSTRAP_SERVERS")) as running:
            yield running
    elif kind == "testcontainers":
        with container() as running:
            yield running
    else:
        with embedded(env) as started:
            yield started


@contextmanager
def embedded(env: Mapping[str, str]) -> Iterator[EmbeddedKafka]:
    # A loop of its own, run only here: the tests' loops come and go with each test.
    loop = asyncio.new_event_loop()
    with TemporaryDirectory(prefix="combee-tests-") as folder:
        kafka = EmbeddedKafka(Path(folder) / "kafka", ready=is_ready, env=env, extra_properties=FOR_TESTS)
        try:
            loop.run_until_complete(kafka.start())
            yield kafka
        finally:
            kafka.kill()  # what it holds is thrown away, and closing thousands of partitions well takes up to 10 s
            loop.run_until_complete(kafka.stop())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()


@contextmanager
def container() -> Iterator[Running]:
    _skip_without_docker()
    from testcontainers.community.kafka import KafkaContainer  # noqa: PLC0415 - only where asked for

    kafka = KafkaContainer().with_kraft()
    for name, value in FOR_TESTS.items():
        kafka.with_env("KAFKA_" + name.upper().replace(".", "_"), value)
    for name in ("REPLICATION_FACTOR", "MIN_ISR"):
        kafka.with_env(f"KAFKA_TRANSACTION_STATE_LOG_{name}", "1")
    kafka.with_env("KAFKA_AUTO_CREATE_TOPICS_ENABLE", "false")
    with kafka:
        yield Running(kafka.get_bootstrap_server())


@contextmanager
def external(bootstrap_servers: str | None) -> Iterator[Running]:
    if not bootstrap_servers:
        pytest.fail("--broker=external needs --bootstrap-servers or COMBEE_BOOTSTRAP_SERVERS.", pytrace=False)
    if not asyncio.run(is_ready(bootstrap_servers)):
        pytest.fail(f"No Kafka that can create topics answers at {bootstrap_servers}.", pytrace=False)
    yield Running(bootstrap_servers)


def _skip_without_docker() -> None:
    with warnings.catch_warnings():
        # The client leaves its socket open where nothing answers; it is collected here, not in some test.
        warnings.simplefilter("ignore", ResourceWarning)
        problem = _docker_problem()
        gc.collect()
    if problem:
        pytest.skip(f"--broker=testcontainers: no Docker engine answers ({problem})")


def _docker_problem() -> str | None:
    import docker  # type: ignore[import-untyped] # noqa: PLC0415 - comes with testcontainers, without types

    try:
        client = docker.from_env()
        try:
            client.ping()
        finally:
            client.close()
    except (docker.errors.DockerException, OSError) as error:
        return str(error)
    return None
