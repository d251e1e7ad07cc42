"""The pages of a worker over HTTP on loopback, also while its event loop is stuck."""

import asyncio
import http.client
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from http import HTTPStatus

import pytest
import pytest_asyncio

from combee.adapters.clock import SystemClock
from combee.adapters.memory import MemoryLog
from combee.adapters.ports import FatalError
from combee.assembly.local.ports import metrics_ports
from combee.log.inspection.lag import Lags
from combee.process.settings.worker import WorkerSettings
from combee.process.telemetry import health
from combee.process.telemetry.health import Health, pages, serving
from combee.process.telemetry.metrics import Metrics, new_registry
from combee.process.telemetry.served import ServedTelemetry

HOST = "127.0.0.1"
DEADLINE_S = 5.0
METRICS = ("text/plain; version=x", b"one 1\n")


class Served:
    def __init__(self, health: Health, port: int) -> None:
        self.health = health
        self.port = port

    async def get(self, path: str) -> tuple[int, str]:
        return await asyncio.to_thread(get, self.port, path)


def get(port: int, path: str) -> tuple[int, str]:
    with closing(http.client.HTTPConnection(HOST, port, timeout=DEADLINE_S)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@pytest_asyncio.fixture
async def served() -> AsyncIterator[Served]:
    health = Health(SystemClock(), dead_letters_per_minute=1)
    async with serving(HOST, 0, pages(health, lambda: METRICS)) as address:
        yield Served(health, int(address.rpartition(":")[2]))


async def test_the_pages_say_how_it_is(served: Served) -> None:
    assert await served.get("/healthz") == (HTTPStatus.OK, "ok  alive: the event loop turns\n")
    status, body = await served.get("/readyz")
    assert status == HTTPStatus.SERVICE_UNAVAILABLE
    assert [line.split(":")[0] for line in body.splitlines() if line.startswith("RED")] == ["RED assigned"]
    served.health.turned()
    assert (await served.get("/readyz?verbose"))[0] == HTTPStatus.OK
    served.health.dead_lettered()
    status, body = await served.get("/readyz")
    assert status == HTTPStatus.SERVICE_UNAVAILABLE
    assert "RED dead_letters" in body
    assert await served.get("/metrics") == (HTTPStatus.OK, "one 1\n")
    assert (await served.get("/"))[0] == HTTPStatus.NOT_FOUND


async def test_a_stuck_event_loop_is_told_while_it_is_stuck(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("combee.process.telemetry.health.STUCK_S", 0.05)
    found: list[tuple[int, str]] = []

    def ask() -> None:
        while not found or (found[-1][0] == HTTPStatus.OK and len(found) < 1000):
            found.append(get(served.port, "/healthz"))

    # Joined without a wait of the loop: it does not turn until the answer is there.
    asking = threading.Thread(target=ask)
    asking.start()
    asking.join(DEADLINE_S)
    assert found[-1][0] == HTTPStatus.SERVICE_UNAVAILABLE
    assert "no turn of the event loop" in found[-1][1]


async def test_clients_that_say_nothing_hold_nobody_up_and_are_hung_up_on(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "REQUEST_S", 0.4)  # one after the other would take 8 s
    silent = [socket.create_connection((HOST, served.port), timeout=DEADLINE_S) for _ in range(20)]
    try:
        assert (await served.get("/healthz"))[0] == HTTPStatus.OK
        for one in silent:
            assert await asyncio.to_thread(one.recv, 1) == b""
    finally:
        for one in silent:
            one.close()


async def test_a_port_that_is_taken_is_refused_with_the_settings_name() -> None:
    with closing(socket.socket()) as taken:
        taken.bind((HOST, 0))
        taken.listen()
        health = Health(SystemClock(), dead_letters_per_minute=1)
        with pytest.raises(FatalError, match="COMBEE_METRICS_PORT"):
            async with serving(HOST, taken.getsockname()[1], pages(health, lambda: METRICS)):
                pass


async def test_the_port_is_free_again_afterwards() -> None:
    health = Health(SystemClock(), dead_letters_per_minute=1)
    async with serving(HOST, 0, pages(health, lambda: METRICS)) as address:
        port = int(address.rpartition(":")[2])
        await asyncio.to_thread(get, port, "/healthz")
    async with serving(HOST, port, pages(health, lambda: METRICS)) as again:
        assert again == address
    with pytest.raises(ConnectionRefusedError):
        await asyncio.to_thread(get, port, "/healthz")


async def test_a_worker_serves_its_lag_and_its_conditions() -> None:
    (port,) = metrics_ports(0, HOST, 1)
    assert port is not None
    metrics = Metrics(new_registry(), SystemClock(), service="publish")
    telemetry = ServedTelemetry("publish", WorkerSettings(), port, SystemClock(), metrics)
    async with telemetry.served(Lags(MemoryLog(SystemClock()), "publish").look):
        telemetry.on_turn()
        async with asyncio.timeout(DEADLINE_S):
            while 'combee_lag_records{service="publish",topic="updates"} 0.0' not in (await text(port)):
                pass
        assert 'combee_condition{condition="assigned"} 1.0' in await text(port)
        assert (await asyncio.to_thread(get, port, "/readyz"))[0] == HTTPStatus.OK


async def text(port: int) -> str:
    return (await asyncio.to_thread(get, port, "/metrics"))[1]


def test_ports_of_a_stack_follow_each_other_or_are_free_or_none() -> None:
    assert metrics_ports(None, HOST, 2) == [None, None]
    assert metrics_ports(9464, HOST, 3) == [9464, 9465, 9466]
    free = metrics_ports(0, HOST, 5)
    assert len(set(free)) == 5
    assert all(16_000 <= port <= 32_000 for port in free if port)
