import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from combee.adapters.embedded_kafka.process import BrokerProcess

WORD = "the-word-of-this-test"
OBEDIENT = "import time; print(flush=True); time.sleep(60)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {OBEDIENT}"

Start = Callable[[str], BrokerProcess]


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[subprocess.Popen[bytes]] = []

    def started(code: str) -> BrokerProcess:
        process = subprocess.Popen([sys.executable, "-c", code, WORD], stdout=subprocess.PIPE)
        running.append(process)
        assert process.stdout
        process.stdout.readline()
        return BrokerProcess(pid=process.pid, word=WORD)

    yield started
    for process in running:
        process.kill()
        process.communicate()


def test_an_id_that_another_program_got_is_not_ours() -> None:
    assert not BrokerProcess(pid=os.getppid(), word=WORD).alive()


async def test_a_stopped_process_is_gone_and_leaves_no_zombie(start: Start) -> None:
    process = start(OBEDIENT)

    await process.stop(10)

    assert not process.alive()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


async def test_a_process_that_will_not_stop_is_killed(start: Start) -> None:
    process = start(STUBBORN)

    await process.stop(0.05)

    assert not process.alive()


async def test_a_paused_process_stops_all_the_same(start: Start) -> None:
    process = start(OBEDIENT)
    process.signal(signal.SIGSTOP)

    await process.stop(10)

    assert not process.alive()


async def test_what_is_gone_can_be_stopped_again(start: Start) -> None:
    process = start(OBEDIENT)
    await process.stop(10)

    await process.stop(10)

    assert await process.wait_ended(0)


async def test_waiting_for_the_end_of_a_running_process_has_a_deadline(start: Start) -> None:
    assert not await start(OBEDIENT).wait_ended(0.05)
