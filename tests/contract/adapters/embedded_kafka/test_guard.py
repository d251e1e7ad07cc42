import asyncio
import os
import sys
from pathlib import Path

import pytest

from combee.adapters.embedded_kafka import DirectoryInUseError, guard
from combee.adapters.embedded_kafka.locks import Lease
from combee.adapters.embedded_kafka.process import BrokerProcess
from support.waiting import until

SLEEPER = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)")
HOLDER = """
import os, pathlib, sys, time
from combee.adapters.embedded_kafka.locks import Lease
lease = Lease(pathlib.Path(sys.argv[1]))
assert lease.take(exclusive=False)
print(flush=True)
time.sleep(60)
"""


def guarded(folder: Path) -> BrokerProcess:
    word = str(folder / "server.properties")
    argv = [sys.executable, "-I", "-S", guard.__file__, str(folder / "lease"), str(folder / "log")]
    pid = os.posix_spawn(sys.executable, [*argv, *SLEEPER, word], {})
    return BrokerProcess(pid=pid, word=word)


async def test_a_broker_ends_when_its_owner_gives_the_lease_back(tmp_path: Path) -> None:
    lease = Lease(tmp_path / "lease")
    assert lease.take(exclusive=True)
    broker = guarded(tmp_path)
    assert not await broker.wait_ended(3 * guard.POLL_S)

    lease.release()

    assert await broker.wait_ended(10)


async def test_a_broker_ends_when_its_last_owner_is_killed_and_not_before(tmp_path: Path) -> None:
    first = Lease(tmp_path / "lease")
    assert first.take(exclusive=False)
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, first.path, stdout=asyncio.subprocess.PIPE
    )
    assert holder.stdout
    await holder.stdout.readline()
    broker = guarded(tmp_path)
    first.release()
    assert not await broker.wait_ended(3 * guard.POLL_S)

    holder.kill()
    await holder.communicate()

    assert await broker.wait_ended(10)


async def test_a_guarded_command_logs_to_its_file_and_leaves_the_terminals_session(tmp_path: Path) -> None:
    lease = Lease(tmp_path / "lease")
    assert lease.take(exclusive=True)
    broker, log = guarded(tmp_path), tmp_path / "log"
    await until(lambda: log.exists() and log.read_text() == "up\n", what="what the command says")

    assert os.getsid(broker.pid) == broker.pid
    await broker.stop(10)
    lease.release()


async def test_the_guard_of_a_broker_that_ended_by_itself_goes_too(tmp_path: Path) -> None:
    lease = Lease(tmp_path / "lease")
    assert lease.take(exclusive=False)
    broker = guarded(tmp_path)
    assert not await broker.wait_ended(0.2)

    await broker.stop(10)
    lease.release()

    await Lease(tmp_path / "lease").wait(5, exclusive=True)


def test_one_owner_alone_keeps_all_others_out(tmp_path: Path) -> None:
    alone, other = Lease(tmp_path / "lease"), Lease(tmp_path / "lease")
    assert alone.take(exclusive=True)

    assert not other.take(exclusive=False)
    alone.release()
    assert other.take(exclusive=False)
    other.release()


def test_a_lease_becomes_exclusive_only_when_nobody_else_shares_it(tmp_path: Path) -> None:
    first, second = Lease(tmp_path / "lease"), Lease(tmp_path / "lease")
    assert first.take(exclusive=False)
    assert second.take(exclusive=False)

    assert not first.take(exclusive=True)
    second.release()
    assert first.take(exclusive=True)
    first.release()


async def test_waiting_for_a_lease_has_a_deadline_and_a_clear_error(tmp_path: Path) -> None:
    alone = Lease(tmp_path / "lease")
    assert alone.take(exclusive=True)

    with pytest.raises(DirectoryInUseError, match="choose another directory"):
        await Lease(tmp_path / "lease").wait(0.05, exclusive=True)

    alone.release()
