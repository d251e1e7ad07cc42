"""What a fault does to a run, at once: end, freeze, separate, refuse; each returns when it is healed."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from support.faults.brokers import Proxy
from support.faults.cluster import ROLES
from support.faults.kafka import FragileKafka
from support.faults.run import Run

RESTARTED_S = 45.0
How = Literal["silent", "resets"]
"""What a partition of the network looks like to those it separates."""


async def end_processes(run: Run, names: Sequence[str], sign: signal.Signals) -> None:
    """End processes, and wait until the supervisor has replaced them."""
    run.note_fault(*{name.partition("-")[0] for name in names}, calls=sign == signal.SIGKILL)
    began = time.monotonic()
    for name in names:
        run.cluster.supervisor.send(name, sign)
    await run.cluster.supervisor.restarted(names, RESTARTED_S)
    run.ready_s.append(time.monotonic() - began)


@contextmanager
def frozen(run: Run, role: str) -> Iterator[None]:
    """SIGSTOP the first replica of a service, then let it go on with what it knew."""
    pid = run.cluster.supervisor.pid(run.cluster.names(role)[0])
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
    run.note_fault(role)


async def freeze(run: Run, role: str, seconds: float) -> None:
    """Leave the first replica of a service frozen for a while."""
    with frozen(run, role):
        await asyncio.sleep(seconds)  # the fault is this long


async def separate(run: Run, proxy: Proxy, seconds: float, how: How, *roles: str) -> None:
    """Cut services off from the broker: silently (no byte, no reset), or with resets and refusals."""
    proxy.hold() if how == "silent" else proxy.cut()
    await asyncio.sleep(seconds)  # the fault is this long
    proxy.heal()
    run.note_fault(*roles)


async def refuse_calls(run: Run, seconds: float) -> None:
    """Let the model refuse every call for a while."""
    await asyncio.to_thread(run.cluster.model_faults, down_for_s=seconds)
    await asyncio.sleep(seconds)  # the fault is this long
    run.note_fault("model", calls=False)


async def restart_broker(run: Run, kafka: FragileKafka) -> None:
    """kill -9 of the only broker, which comes back on its data."""
    kafka.kill()
    await kafka.restart_node(1)
    run.note_fault(*ROLES)
