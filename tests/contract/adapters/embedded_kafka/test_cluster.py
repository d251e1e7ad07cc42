import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType

import pytest

from combee.adapters.embedded_kafka import (
    BrokerStartError,
    DirectoryInUseError,
    DiskFullError,
    EmbeddedKafkaError,
    PortTakenError,
    cluster,
)
from combee.adapters.embedded_kafka.data_dir import RunState
from combee.adapters.embedded_kafka.java import find_java
from support.fake_java import fake_jvm
from support.faults.kafka import FragileKafka


async def at_once(_: str) -> bool:
    return True


async def never(_: str) -> bool:
    return False


def broker(
    folder: Path,
    *,
    nodes: int = 1,
    ready: cluster.Ready = at_once,
    faults: Mapping[str, str] = MappingProxyType({}),
) -> FragileKafka:
    properties = {f"fake.{name}": value for name, value in faults.items()}
    kafka = FragileKafka(folder / "data", ready=ready, env={}, nodes=nodes, extra_properties=properties)
    kafka._jvm = fake_jvm(folder / "jvm")
    return kafka


@asynccontextmanager
async def listener(port: int) -> AsyncIterator[None]:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        yield


def port_of(kafka: FragileKafka) -> int:
    return int(kafka.bootstrap_servers.rpartition(":")[2])


async def test_a_second_object_on_the_same_directory_has_the_same_address(tmp_path: Path) -> None:
    async with broker(tmp_path) as first:
        address = first.bootstrap_servers

    async with broker(tmp_path) as second:
        assert second.bootstrap_servers == address


async def test_an_old_port_that_is_taken_is_replaced(tmp_path: Path) -> None:
    async with broker(tmp_path) as first:
        port = port_of(first)

    async with listener(port), broker(tmp_path) as second:
        assert port_of(second) != port


async def test_a_killed_node_comes_back_on_its_port(tmp_path: Path) -> None:
    async with broker(tmp_path, nodes=2) as kafka:
        address = kafka.bootstrap_servers
        kafka.kill(2)

        await kafka.restart_node(2)

        assert kafka.bootstrap_servers == address


async def test_a_node_whose_port_was_taken_meanwhile_says_so(tmp_path: Path) -> None:
    async with broker(tmp_path) as kafka:
        kafka.kill()
        process = kafka._nodes[0].process
        assert process
        assert await process.wait_ended(10)

        async with listener(port_of(kafka)):
            with pytest.raises(PortTakenError, match="end the process"):
                await kafka.restart_node(1)


async def test_two_objects_cannot_have_one_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "LEASE_TIMEOUT_S", 0.05)
    async with broker(tmp_path) as first:
        with pytest.raises(DirectoryInUseError):
            await broker(tmp_path).start()

        assert first._nodes[0].alive


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"format": "java.io.IOException: No space left on device"}, DiskFullError),
        ({"start": "java.io.IOException: No space left on device"}, DiskFullError),
        ({"start": "java.net.BindException: Address already in use"}, PortTakenError),
        ({"start": "nobody knows why"}, BrokerStartError),
    ],
)
async def test_a_failed_start_is_told_by_its_log_and_leaves_nothing_behind(
    tmp_path: Path, fault: dict[str, str], kind: type[EmbeddedKafkaError]
) -> None:
    kafka = broker(tmp_path, nodes=2, faults=fault)

    with pytest.raises(kind):
        await kafka.start()

    assert not any(node.alive for node in kafka._nodes)
    assert RunState.load(tmp_path / "data") is None


async def test_a_broker_that_is_never_ready_is_stopped_and_its_log_shown(tmp_path: Path) -> None:
    kafka = broker(tmp_path, ready=never)

    with pytest.raises(BrokerStartError, match="not ready after"):
        await kafka.start(timeout_s=0.3)

    assert not kafka._nodes[0].alive


async def test_a_directory_of_three_nodes_is_not_started_with_one(tmp_path: Path) -> None:
    async with broker(tmp_path, nodes=3):
        pass

    with pytest.raises(EmbeddedKafkaError, match="a cluster of 3 nodes, not of 1"):
        await broker(tmp_path).start()


async def test_there_is_no_address_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedKafkaError, match="start it first"):
        _ = broker(tmp_path).bootstrap_servers


async def test_the_log_of_the_last_run_is_kept(tmp_path: Path) -> None:
    for _ in range(2):
        async with broker(tmp_path):
            pass

    assert {p.name for p in (tmp_path / "data" / "node-1").glob("broker*.log")} == {
        "broker.log",
        "broker.previous.log",
    }


async def test_the_broker_gets_none_of_our_secrets(tmp_path: Path) -> None:
    env = {"OPENAI_API_KEY": "secret", "PATH": "/bin"}
    jvm = fake_jvm(tmp_path)

    assert type(jvm)(java=jvm.java, jars=(), archive=jvm.archive, benchmark=True, env=env)._environment() == {
        "PATH": "/bin"
    }


def test_the_wheel_brings_a_java_that_will_do() -> None:
    assert find_java({"PATH": ""}).path.name == "java"
