"""The supervisor leaves no process behind."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from combee.adapters.clock import SystemClock
from combee.adapters.ports import FatalError
from combee.assembly.local.supervisor import Process, Supervisor
from support.waiting import until

ENDS = "pass"
LASTS = "import time; time.sleep(60)"
LEAVES_WHEN_LET = (
    "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); sys.stdin.read()"
)


class Scripted(Supervisor):
    """Runs scripts; the second start of a process waits for the gate."""

    def __init__(self, folder: Path, **scripts: list[str]) -> None:
        super().__init__(folder, SystemClock())
        self.scripts = scripts
        self.gate = asyncio.Event()
        self.begun: dict[str, int] = defaultdict(int)
        self.all: list[asyncio.subprocess.Process] = []

    async def _spawn(self, process: Process) -> asyncio.subprocess.Process:
        self.begun[process.name] += 1
        if self.begun[process.name] > 1:
            await self.gate.wait()
        script = self.scripts[process.name].pop(0)
        one = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
        )
        self.all.append(one)
        return one


def process(name: str, folder: Path) -> Process:
    return Process(name=name, arguments=(), env={}, ready_file=folder / f"{name}.ready")


async def test_a_process_that_is_being_restarted_while_all_stop_is_stopped_too(tmp_path: Path) -> None:
    supervisor = Scripted(tmp_path, polite=[LEAVES_WHEN_LET], restless=[ENDS, LASTS])
    try:
        await supervisor.start(process("polite", tmp_path))
        polite = supervisor.all[0]
        assert polite.stdin
        assert polite.stdout
        await polite.stdout.readline()  # from now on it ignores SIGTERM
        await supervisor.start(process("restless", tmp_path))
        await until(lambda: supervisor.begun["restless"] == 2)
        stopping = asyncio.create_task(supervisor.stop(timeout_s=20))
        await asyncio.sleep(0)
        supervisor.gate.set()
        await until(lambda: len(supervisor.all) == 3)
        polite.stdin.close()
        await stopping
        assert all(one.returncode is not None for one in supervisor.all)
    finally:
        for one in supervisor.all:
            if one.returncode is None:
                one.kill()
                await one.wait()


async def test_a_process_that_is_misconfigured_ends_all_at_once_and_is_not_tried_again(
    tmp_path: Path,
) -> None:
    supervisor = Scripted(tmp_path, refused=["raise SystemExit(2)"])
    await supervisor.start(process("refused", tmp_path))
    async with asyncio.timeout(20):
        with pytest.raises(FatalError, match="refused cannot run"):
            await supervisor.failed()
    await supervisor.stop(timeout_s=5)
    assert supervisor.begun["refused"] == 1


async def test_a_process_that_is_refused_after_it_has_been_ready_is_tried_again(tmp_path: Path) -> None:
    ready = tmp_path / "refused.ready"
    refused_later = f"open({str(ready)!r}, 'w').close(); raise SystemExit(2)"
    supervisor = Scripted(tmp_path, refused=[refused_later, LASTS])
    supervisor.gate.set()
    await supervisor.start(process("refused", tmp_path))
    await until(lambda: len(supervisor.all) == 2)
    supervisor.check()
    await supervisor.stop(timeout_s=5)


async def test_a_process_that_fails_is_told_of_with_the_last_that_it_said(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, SystemClock())
    script = "import sys; print('going on', flush=True); sys.exit('no such topic')"
    failing = replace(process("failing", tmp_path), command=(sys.executable, "-c", script))
    with capture_logs() as logs:
        await supervisor.start(failing)
        try:
            await until(lambda: bool(logs))
        finally:
            await supervisor.stop(timeout_s=5)
    told = {name: logs[0][name] for name in ("event", "process", "code", "said")}
    assert told == {"event": "process_ended", "process": "failing", "code": 1, "said": "no such topic"}
