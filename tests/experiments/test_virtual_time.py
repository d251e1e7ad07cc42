"""The loop of virtual time: timers cost nothing, what is outside is waited for."""

import asyncio
import socket
import threading
import time
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

import pytest

from combee_experiments.running.virtual_time import NothingLeftError, VirtualTimeLoop, run_virtual

T = TypeVar("T")
LONG_S = 10_000.0


def run(work: Coroutine[Any, Any, T], *, alone: bool = False) -> T:
    with asyncio.Runner(loop_factory=partial(VirtualTimeLoop, alone=alone)) as runner:
        return runner.run(work)


async def ended_at(*pauses_s: float) -> list[tuple[float, float]]:
    """Return which pauses ended when, in order."""
    loop, ended = asyncio.get_running_loop(), list[tuple[float, float]]()
    begun = loop.time()

    async def pause(seconds: float) -> None:
        await asyncio.sleep(seconds)
        ended.append((seconds, loop.time() - begun))

    await asyncio.gather(*map(pause, pauses_s))
    return ended


@pytest.mark.parametrize("alone", [False, True])
def test_pauses_end_in_order_and_cost_no_time(alone: bool) -> None:  # noqa: FBT001 - a parameter
    begun = time.monotonic()
    ended = run(ended_at(LONG_S, 1.0, LONG_S / 2), alone=alone)
    assert time.monotonic() - begun < LONG_S / 1_000
    assert [seconds for seconds, _ in ended] == [1.0, LONG_S / 2, LONG_S]
    assert [at for _, at in ended] == pytest.approx([1.0, LONG_S / 2, LONG_S], abs=1.0)


def test_alone_a_loop_has_the_same_times_in_every_run() -> None:
    assert run_virtual(ended_at(3.0, 0.1, 0.2)) == [(0.1, 0.1), (0.2, 0.2), (3.0, 3.0)]


def test_alone_a_loop_cannot_wait_without_a_timer() -> None:
    with pytest.raises(NothingLeftError):
        run_virtual(asyncio.Event().wait())


def test_a_thread_of_its_own_is_waited_for_before_a_timer() -> None:
    go_on = threading.Event()

    async def thread() -> bool:
        asyncio.get_running_loop().call_soon(go_on.set)
        async with asyncio.timeout(LONG_S):
            return await asyncio.to_thread(go_on.wait)

    assert run(thread())


def test_a_socket_is_waited_for_before_a_timer() -> None:
    async def read() -> bytes:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        sending = threading.Timer(0.05, theirs.sendall, (b"x",))
        sending.start()
        async with asyncio.timeout(LONG_S):
            found = await reader.readexactly(1)
        sending.join()
        writer.close()
        theirs.close()
        return found

    assert run(read()) == b"x"


def test_another_thread_may_wake_a_loop_that_is_not_alone() -> None:
    async def woken() -> bool:
        event, loop = asyncio.Event(), asyncio.get_running_loop()
        waking = threading.Timer(0.05, loop.call_soon_threadsafe, (event.set,))
        waking.start()
        return await event.wait()

    assert run(woken())


def test_a_run_that_used_a_thread_ends() -> None:
    async def work() -> int:
        return await asyncio.to_thread(sum, (1, 2))

    assert run_virtual(work()) == 3
