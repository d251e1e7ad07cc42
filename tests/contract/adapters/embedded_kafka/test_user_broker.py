import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from combee.adapters.embedded_kafka import (
    BrokerStartError,
    DirectoryInUseError,
    PortTakenError,
    guard,
    user_broker,
)
from combee.adapters.embedded_kafka.data_dir import RunState
from combee.adapters.embedded_kafka.locks import file_lock
from combee.adapters.embedded_kafka.node import node_lease, node_process
from combee.adapters.embedded_kafka.process import BrokerProcess
from combee.adapters.embedded_kafka.user_broker import SharedKafka, use_broker
from support.fake_java import fake_jvm
from support.waiting import until


async def at_once(_: str) -> bool:
    return True


def shared(folder: Path) -> SharedKafka:
    kafka = SharedKafka(folder / "home", ready=at_once, env={})
    kafka._jvm = fake_jvm(folder / "jvm")
    return kafka


@asynccontextmanager
async def command(folder: Path) -> AsyncIterator[BrokerProcess]:
    kafka = shared(folder)
    async with use_broker(kafka, 5):
        process = kafka._nodes[0].process
        assert process
        yield process


async def test_one_command_starts_the_broker_and_stops_it(tmp_path: Path) -> None:
    async with command(tmp_path) as process:
        assert process.alive()

    assert not process.alive()
    assert RunState.load(tmp_path / "home") is None


async def test_a_second_command_uses_the_broker_of_the_first(tmp_path: Path) -> None:
    async with command(tmp_path) as first, command(tmp_path) as second:
        assert first == second


async def test_the_broker_stays_as_long_as_either_command_runs(tmp_path: Path) -> None:
    starter, joiner = command(tmp_path), command(tmp_path)
    process = await starter.__aenter__()
    await joiner.__aenter__()

    await starter.__aexit__(None, None, None)
    assert not await process.wait_ended(0.7)

    await joiner.__aexit__(None, None, None)
    assert not process.alive()


async def test_two_commands_at_once_start_one_broker(tmp_path: Path) -> None:
    everybody = asyncio.Barrier(4)

    async def one() -> int:
        async with command(tmp_path) as process:
            await everybody.wait()
            return process.pid

    assert len(set(await asyncio.gather(*(one() for _ in range(4))))) == 1


async def test_the_run_file_of_a_dead_broker_is_not_believed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    RunState(address="127.0.0.1:1", pids={1: os.getpid()}).save(home)

    async with command(tmp_path) as process:
        assert process.pid != os.getpid()


async def test_a_broker_whose_users_all_vanished_is_not_joined_while_it_ends(tmp_path: Path) -> None:
    vanished = shared(tmp_path)
    async with vanished.locked(1):
        await vanished.start()
    vanished.release()

    async with command(tmp_path) as process:
        assert not await process.wait_ended(3 * guard.POLL_S)


async def test_a_guard_that_is_ending_the_broker_is_waited_for(tmp_path: Path) -> None:
    vanished = shared(tmp_path)
    async with vanished.locked(1):
        await vanished.start()
    run = RunState.load(tmp_path / "home")
    assert run
    process = node_process(tmp_path / "home", 1, run.pids[1])
    vanished.release()
    # As the guard does while it ends the broker.
    ending = node_lease(tmp_path / "home", 1)
    await ending.wait(5, exclusive=True)
    ending.release()

    assert await process.wait_ended(10)
    async with command(tmp_path) as new:
        assert new.pid != process.pid


async def test_a_broker_that_does_not_answer_is_named_with_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(_: str) -> bool:
        return False

    monkeypatch.setattr(user_broker, "JOIN_TIMEOUT_S", 0.1)
    async with command(tmp_path) as process:
        second = SharedKafka(tmp_path / "home", ready=deaf, env={})
        with pytest.raises(BrokerStartError, match=f"kill {process.pid}"):
            async with use_broker(second, 5):
                pass

        assert process.alive()


async def test_a_directory_that_stays_locked_is_a_clear_error(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    async with file_lock(home / "lock", 1, what="it"):
        with pytest.raises(DirectoryInUseError, match="Combee's data directory"):
            async with use_broker(shared(tmp_path), 0.05):
                pass


@contextmanager
def stranger(address: str) -> Iterator[None]:
    """Listen at an address that is not ours."""
    host, port = address.split(":")
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, int(port)))
        listener.listen()
        yield


async def again(kafka: SharedKafka, dead: BrokerProcess) -> BrokerProcess:
    """Return the process that has taken a dead one's place and answers."""

    def replaced() -> bool:
        now = kafka._nodes[0].process
        return now is not None and now != dead and now.alive()

    await until(replaced)
    process = kafka._nodes[0].process
    assert process
    return process


async def test_a_broker_that_is_killed_while_in_use_is_started_again_on_its_ports(tmp_path: Path) -> None:
    kafka, told = shared(tmp_path), list[str]()
    async with use_broker(kafka, 5, told.append) as address:
        first = kafka._nodes[0].process
        assert first
        first.signal(signal.SIGKILL)
        second = await again(kafka, first)
        await until(lambda: len(told) == 3)
        assert kafka.bootstrap_servers == address
        assert "started again" in told[1]
        assert told[2].endswith(address)
    assert not second.alive()


async def test_a_broker_that_cannot_be_started_again_just_now_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka, told = shared(tmp_path), list[str]()
    async with use_broker(kafka, 5, told.append):
        first, start = kafka._nodes[0].process, kafka.start
        assert first

        async def once() -> None:
            monkeypatch.setattr(kafka, "start", start)
            raise OSError("Cannot allocate memory")

        monkeypatch.setattr(kafka, "start", once)
        first.signal(signal.SIGKILL)
        await again(kafka, first)
        await until(lambda: len(told) == 5)
        assert told[2] == "Cannot allocate memory"


async def test_a_command_that_finds_a_killed_broker_first_keeps_its_ports_and_both_use_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_broker, "CHECK_EVERY_S", 1.0)
    keeper, quicker = shared(tmp_path), shared(tmp_path)
    async with use_broker(keeper, 5) as address:
        first = keeper._nodes[0].process
        assert first
        first.signal(signal.SIGKILL)
        assert await first.wait_ended(5)
        with stranger(address), pytest.raises(PortTakenError):
            async with use_broker(quicker, 5):  # it may not move: the keeper's clients know its ports
                pass
        async with use_broker(quicker, 5) as found:
            assert found == address
            assert await again(keeper, first) == quicker._nodes[0].process


async def test_a_broker_that_cannot_start_again_is_tried_with_growing_pauses_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_broker, "BACK_OFF_S", 0.01)
    kafka, told = shared(tmp_path), list[str]()
    async with use_broker(kafka, 5, told.append) as address:
        first = kafka._nodes[0].process
        assert first
        first.signal(signal.SIGKILL)
        assert await first.wait_ended(5)
        with stranger(address):
            await until(lambda: sum("which Kafka node 1 needs, is taken" in line for line in told) >= 2)
        await again(kafka, first)
        assert kafka.bootstrap_servers == address
        assert "in 0.01 s" in "".join(told)
        assert "in 0.02 s" in "".join(told)
