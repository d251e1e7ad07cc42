"""One real Kafka for a test session: embedded, in a container, or one that runs already."""

import asyncio
import gc
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import pytest

from combee.adapters.embedded_kafka import EmbeddedKafka
from combee.adapters.embedded_kafka.data_dir import VERSION, RunState, new_cluster_id
from combee.adapters.embedded_kafka.node import node_folder, server_properties
from combee.adapters.embedded_kafka.ports import LOOPBACK, free_ports
from combee.adapters.embedded_kafka.user_broker import SharedKafka
from combee.adapters.kafka import is_ready

CONTAINER_S, LOOK_EVERY_S = 200.0, 0.2
ENGINE_S = 600
"""What an engine may take to answer: on a busy machine, removing a container has taken more than a minute."""
STARTED_S = 180.0
"""A process waits so long for the broker that another one starts or ends."""
FOR_TESTS = {
    # Tests of compaction and of deletion must not wait for minutes.
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    # Two files of 10 MiB a partition are most of what a test reads that searches the broker's files.
    "log.index.size.max.bytes": "131072",
}
FOR_ALL = {
    **FOR_TESTS,
    # Kafka's own defaults: it comes to hold thousands of partitions, through which it would look all the time.
    "log.cleaner.backoff.ms": "15000",
    "log.retention.check.interval.ms": "300000",
}


class Broker(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Running:
    bootstrap_servers: str
    folder: Path | None = None
    """Where its partitions' folders are, if this machine reaches them."""


def segments(broker: Broker) -> Path | None:
    """Return the folder that holds the partitions' folders; None: this machine does not reach it."""
    if isinstance(broker, EmbeddedKafka):
        return broker._nodes[0].folder / "logs"
    return broker.folder if isinstance(broker, Running) else None


@contextmanager
def broker(
    kind: str, *, env: Mapping[str, str], folder: Path, bootstrap_servers: str | None
) -> Iterator[Broker]:
    if kind == "external":
        with external(bootstrap_servers or env.get("COMBEE_BOOTSTRAP_SERVERS")) as running:
            yield running
    elif kind == "testcontainers":
        with container(env) as running:
            yield running
    else:
        with embedded(env, folder) as started:
            yield started


@contextmanager
def embedded(env: Mapping[str, str], folder: Path) -> Iterator[EmbeddedKafka]:
    """Run one broker for all processes of a run: the first that needs it starts it, the last one ends it.

    A start costs seconds, and a broker that has just started takes twice the processor time for all that it does.
    """
    # A loop of its own, run only here: the tests' loops come and go with each test.
    loop = asyncio.new_event_loop()
    kafka = SharedKafka(folder, ready=is_ready, env=env, extra_properties=FOR_ALL)
    try:
        loop.run_until_complete(_joined(kafka))
        yield kafka
    finally:
        loop.run_until_complete(_left(kafka, folder))
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def _joined(kafka: SharedKafka) -> None:
    await kafka.prepare()  # not under the lock: the first time this downloads the broker
    async with kafka.locked(STARTED_S):
        if not await kafka.join():
            await kafka.start()


async def _left(kafka: SharedKafka, folder: Path) -> None:
    try:
        async with kafka.locked(STARTED_S):
            # What it holds is thrown away, and closing thousands of partitions well takes up to 10 s.
            await kafka.leave(0)
            if RunState.load(folder) is None:
                shutil.rmtree(node_folder(folder, 1), ignore_errors=True)
    finally:
        kafka.release()


@contextmanager
def container(env: Mapping[str, str]) -> Iterator[Running]:
    """Run the image of docker-compose.yml; ``KAFKA_IMAGE`` names another one."""
    _skip_without_docker()
    from testcontainers.core.config import testcontainers_config  # noqa: PLC0415 - only where asked for
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - the same

    # Its helper is an image of its own, and the container is removed here in any case.
    testcontainers_config.ryuk_disabled = True
    (ports,) = free_ports(1)
    data = "/var/lib/kafka/data"
    address = f"{LOOPBACK}:{ports.broker}"
    # Kafka tells clients where to connect to, hence the same port on both sides.
    image = env.get("KAFKA_IMAGE", f"apache/kafka:{VERSION}")
    kafka = DockerContainer(image, docker_client_kw={"timeout": ENGINE_S})
    kafka.with_bind_ports(ports.broker, ports.broker)
    properties = server_properties(1, (ports,), Path(data), FOR_ALL) | {
        "listeners": f"PLAINTEXT://:{ports.broker},CONTROLLER://:{ports.controller}"
    }
    for name, value in properties.items():
        kafka.with_env("KAFKA_" + name.upper().replace(".", "_"), value)
    # Its files belong to the image's user: only root, or that user, can remove them.
    with TemporaryDirectory(prefix="combee-tests-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o777)
        with kafka.with_volume_mapping(folder, data, "rw").with_env("CLUSTER_ID", new_cluster_id()):
            asyncio.run(_ready(address))
            yield Running(address, Path(folder))


async def _ready(address: str) -> None:
    try:
        async with asyncio.timeout(CONTAINER_S):
            while not await is_ready(address):  # noqa: ASYNC110 - a broker sets no event
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError:
        pytest.fail(f"Kafka's container does not answer after {CONTAINER_S:.0f} s", pytrace=False)


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
