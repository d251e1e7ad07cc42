"""Workers whose broker is away when they start wait for it, and work when it comes; a refusal ends them at once."""

import asyncio
import http.client
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from combee.assembly import backends
from combee.assembly.local.ports import metrics_ports
from combee.process.settings.loading import load_settings
from support.broker import Broker
from support.cli import combee, start
from support.faults.brokers import Fronted, fronted_broker
from support.forked import Forked
from support.waiting import until

HOST = "127.0.0.1"
ROLES = ("publish", "shuffle", "reflect", "gateway")
SOON_S = 60.0


@pytest.fixture
async def fronted(tmp_path: Path, machine_env: dict[str, str]) -> AsyncIterator[Fronted]:
    async with fronted_broker(tmp_path, machine_env) as broker:
        yield broker


def readiness(port: int) -> tuple[int, str]:
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()


@asynccontextmanager
async def workers(tmp_path: Path, ports: Mapping[str, int], **env: str) -> AsyncIterator[dict[str, Forked]]:
    running = {
        role: await start("worker", role, "--metrics-port", str(port), data_dir=tmp_path, **env)
        for role, port in ports.items()
    }
    try:
        yield running
    finally:
        for process in running.values():
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
            await process.communicate()


async def test_workers_that_start_before_their_broker_are_red_say_so_once_and_work_when_it_comes(
    fronted: Fronted, topic_prefix: str, tmp_path: Path
) -> None:
    made = load_settings(bootstrap_servers=fronted.bootstrap_servers, topic_prefix=topic_prefix)
    await backends.create_topics(made, backends.connection(made, fronted.bootstrap_servers))
    fronted.proxy.cut()
    found = metrics_ports(0, HOST, len(ROLES))
    ports = {role: port for role, port in zip(ROLES, found, strict=True) if port is not None}
    env = {
        "COMBEE_BOOTSTRAP_SERVERS": fronted.address,
        "COMBEE_TOPIC_PREFIX": topic_prefix,
        "COMBEE_MODEL": "simulated",
        "COMBEE_BASE_URL": f"http://{HOST}:1/v1",
        "COMBEE_GATEWAY_PORT": "0",
    }

    def all_are(status: int, *words: str) -> bool:
        pages = [readiness(port) for port in ports.values()]
        asked = not any("it has not been asked yet" in body for _, body in pages)
        return asked and all(found == status and all(word in body for word in words) for found, body in pages)

    async with workers(tmp_path, ports, **env) as running:
        waiting = f"RED broker: waiting for Kafka at {fronted.address} for"
        await until(lambda: all_are(503, waiting), SOON_S, "readiness red for the broker")
        assert all(process.returncode is None for process in running.values())
        fronted.proxy.heal()
        await until(lambda: all_are(200, "ok  broker"), SOON_S, "readiness after the broker has come")
        for process in running.values():
            process.send_signal(signal.SIGKILL)
        said = {role: (await process.communicate())[1].decode() for role, process in running.items()}
    for role, text in said.items():
        assert 1 <= text.count("log_unavailable") <= 2, (role, text)  # a busy machine may take a minute
        assert "Unable connect" not in text, (role, text)


@pytest.mark.parametrize("verb", [("worker", "publish"), ("status",)], ids=" ".join)
async def test_wrong_tls_ends_a_worker_and_a_verb_with_2_at_once(
    kafka: Broker, topic_prefix: str, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    async with asyncio.timeout(SOON_S):
        ended = await combee(
            *verb,
            data_dir=tmp_path,
            COMBEE_BOOTSTRAP_SERVERS=kafka.bootstrap_servers,
            COMBEE_TOPIC_PREFIX=topic_prefix,
            COMBEE_SECURITY_PROTOCOL="SSL",
        )
    assert ended.code == 2, ended.err
    assert "SSL" in ended.err
    assert "Traceback" not in ended.err
    assert "waiting" not in ended.err
