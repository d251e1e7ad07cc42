"""``combee up`` when its broker, a second one of its kind, or it itself comes to harm."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from combee.adapters.embedded_kafka.data_dir import RunState
from support.cli import all_gone, combee, descendants, start_anew

READY_S = 120.0
UP, HEALTH = "combee is up; ", "health, metrics"
BACK = "Kafka answers again at "


class Running:
    """A ``combee up``, and what it says."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []

    async def says(self, text: str) -> str:
        """Read on until a line holds this; return the line."""
        assert self.process.stderr
        with suppress(TimeoutError):
            async with asyncio.timeout(READY_S):
                async for raw in self.process.stderr:
                    self.lines.append(raw.decode(errors="replace").rstrip())
                    if text in self.lines[-1]:
                        return self.lines[-1]
        raise AssertionError("\n".join([f"it has not said {text!r}:", *self.lines]))


@asynccontextmanager
async def up(data_dir: Path, *arguments: str, **settings: str) -> AsyncIterator[Running]:
    (data_dir / "http.py").write_text("raise AssertionError('a file of the current folder hides a module')")
    settings = {"COMBEE_BATCH_SIZE": "5", **settings}
    process = await start_anew(
        "up", "--simulated", *(arguments or ("--no-gateway",)), data_dir=data_dir, **settings
    )
    running = Running(process)
    family: list[psutil.Process] = []
    try:
        await running.says(HEALTH)
        family = descendants(process.pid)
        yield running
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.communicate()
        for one in await all_gone(family):
            one.kill()


async def learned(data_dir: Path, ids: range) -> dict[str, Any]:
    """Learn from reflections with these numbers; return the report."""
    lines = [json.dumps({"reflection_id": f"r-{n}", "key_insight": f"Lesson number {n}."}) for n in ids]
    ended = await combee("learn", "-", "--json", data_dir=data_dir, stdin="\n".join(lines))
    assert ended.code == 0, ended.err
    return ended.json()


async def clean_ledger(data_dir: Path, applied: int) -> None:
    ledger = (await combee("ledger", "--json", data_dir=data_dir)).json()
    figures = {name: ledger[name] for name in ("applied", "lost", "double", "violations")}
    assert figures == {"applied": applied, "lost": 0, "double": 0, "violations": []}


@pytest.mark.timeout(400)
async def test_up_brings_its_killed_broker_back_refuses_a_second_up_and_leaves_nothing_in_the_way(
    tmp_path: Path,
) -> None:
    async with up(tmp_path) as running:
        # So it does where all of its libraries are loaded just then.
        assert running.lines[1].startswith(UP)
        assert all(line.startswith("  ") for line in running.lines[2:])

        second = await combee("up", "--simulated", data_dir=tmp_path)
        assert second.code == 2
        assert f"combee up (process {running.process.pid}, 127.0.0.1:" in second.err
        assert second.err.count("\n") == 1

        await learned(tmp_path, range(7))
        broker = RunState.load(tmp_path / "kafka") or RunState.load(tmp_path)
        assert broker
        os.kill(broker.pids[1], signal.SIGKILL)
        # A verb of the moment, while there is no broker.
        report = await learned(tmp_path, range(7, 14))
        assert report["reflections"]["applied"] == 7
        assert (await running.says(BACK)).endswith(broker.address)
        noise = [line for line in running.lines if re.search(r"Unable connect|NodeNotReady|Traceback", line)]
        assert noise == []

        left = [one for one in descendants(running.process.pid) if "worker" in one.cmdline()]
        left[0].suspend()
        running.process.kill()
        await running.process.wait()
    async with up(tmp_path):
        assert not left[0].is_running()
        await clean_ledger(tmp_path, applied=14)


@pytest.mark.timeout(300)
async def test_where_a_judge_is_on_up_makes_a_key_without_which_no_command_passes(tmp_path: Path) -> None:
    async with up(tmp_path, "--gateway", COMBEE_GATE="approve", COMBEE_GATEWAY_PORT="0") as running:
        link = await running.says("to give commands")
        served = next(line.split()[-1] for line in running.lines if "HTTP, dashboard" in line)
        file = next(Path(line.split()[2]) for line in running.lines if "admin key" in line)
        assert file.is_relative_to(tmp_path)
        assert file.stat().st_mode & 0o777 == 0o600
        assert f"{served}/open#" in link
        key = file.read_text().strip()
        async with httpx.AsyncClient(base_url=served) as client:
            lesson = {"playbook": "support/refunds", "key_insight": "Ask for the order number."}
            assert (await client.post("/v1/reflections", json=lesson)).status_code == 202
            refused = await client.post("/v1/playbooks/support/refunds/flush", json={})
            assert refused.status_code == 403
            headers = {"authorization": f"Bearer {key}"}
            where = "/v1/playbooks/support/refunds/flush?wait_s=60"
            done = await client.post(where, json={}, headers=headers, timeout=90)
            assert done.json()["version"] == 1
        assert not [line for line in running.lines if key in line]
