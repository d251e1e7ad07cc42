"""``combee up`` when its broker, a second one of its kind, or it itself comes to harm."""

import asyncio
import json
import os
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from combee.adapters.embedded_kafka.data_dir import RunState
from combee.adapters.kafka import KafkaLog
from combee.adapters.ports import Outgoing
from combee.assembly.backends import connection
from combee.core.text.forms import comparable
from combee.process.settings.loading import load_settings
from combee_schemas import topics
from combee_schemas.trace import Trace
from support.cli import all_gone, combee, descendants, start_anew
from support.hostile import newer
from support.segments import contents

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
    async with up(tmp_path, "--no-gateway") as running:
        # So it does where all of its libraries are loaded just then.
        assert running.lines[2].startswith(UP)
        assert all(line.startswith("  ") for line in running.lines[3:])

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
    async with up(tmp_path, "--no-gateway"):
        assert not left[0].is_running()
        await clean_ledger(tmp_path, applied=14)


def hostile() -> Iterator[Outgoing]:
    """Yield records of a version ahead on each topic that agents write, and a flood of what says nothing."""
    for topic in filter(lambda topic: topic.is_open, topics.TOPICS):
        for key in (b"support/refunds", None):
            yield Outgoing(topic=topic.name, key=key, value=newer(topic.message, 58))
    for number, name in product(range(40), ("invented/one", "invented/two")):
        yield topics.TRACES.record(Trace(trace_id=f"{name}-{number}", playbook=name, task=""))


@pytest.mark.timeout(400)
async def test_no_record_that_an_agent_may_write_ends_up_and_everything_goes_on_learning(
    tmp_path: Path,
) -> None:
    async with up(tmp_path, "--gateway", COMBEE_GATEWAY_PORT="0") as running:
        (served,) = (line.split()[-1] for line in running.lines if "HTTP, dashboard" in line)
        await learned(tmp_path, range(7))
        broker = RunState.load(tmp_path / "kafka") or RunState.load(tmp_path)
        assert broker
        settings = load_settings()
        async with httpx.AsyncClient(base_url=served, timeout=30) as client:
            assert (await client.get("/v1/status")).status_code == 200, "the picture is being looked at"
            log = KafkaLog(connection(settings, broker.address))
            try:
                sent = list(hostile())
                await log.produce(*sent)
            finally:
                await log.close()
            report = await learned(tmp_path, range(7, 14))
            assert report["reflections"]["applied"] == 7
            assert running.process.returncode is None
            assert (await client.get("/v1/status")).status_code == 200
        listed = (await combee("dlq", "list", "--json", "--reason", "upgrade", data_dir=tmp_path)).json()
        assert Counter(one["origin"]["topic"] for one in listed["dead_letters"]) == {
            "traces": 2,
            "reflections": 2,
            "outcomes": 2,
        }
        await clean_ledger(tmp_path, applied=14)


@pytest.mark.timeout(400)
async def test_after_ctrl_c_a_person_is_forgotten_at_once_and_named_in_no_file_any_more(
    tmp_path: Path,
) -> None:
    said = ("Write to Jane Roe first.", "Call JANE\u00ad  ROE back.", "Ask for the order number.")
    lines = "\n".join(json.dumps({"key_insight": text}) for text in said)
    async with up(tmp_path) as running:
        ended = await combee("learn", "-", data_dir=tmp_path, stdin=lines)
        assert ended.code == 0, ended.err
        running.process.send_signal(signal.SIGINT)
        await running.process.communicate()
    before = files_with(tmp_path, "Jane Roe")
    assert before >= {
        "combee.reflections",
        "combee.scan.0",
        "combee.updates",
        "combee.history",
        "combee.playbooks",
    }
    assert files_with(tmp_path, "order number") >= {"combee.reflections", "combee.history"}

    ended = await combee(
        "forget", "--subject-file", "-", "--to", "left", "--yes", data_dir=tmp_path, stdin="jane roe"
    )
    assert ended.code == 0, ended.err
    assert "waiting up to 15 s until Kafka forgets the services" in ended.err
    assert files_with(tmp_path, "Jane Roe") == set()
    assert files_with(tmp_path, "order number") >= {"left.reflections", "left.history"}
    assert not [folder for folder in (tmp_path / "node-1" / "logs").iterdir() if "combee." in folder.name]


def files_with(folder: Path, text: str) -> set[str]:
    """Return the topics, and other files, that hold a text, however it is spelt or compressed."""
    return {
        file.parent.name.rpartition("-")[0] or file.name
        for file in folder.rglob("*")
        if file.is_file()
        for _, raw in contents(file)
        if comparable(text) in comparable(raw.decode(errors="replace"))
    }


@pytest.mark.timeout(300)
async def test_where_a_judge_is_on_up_makes_a_key_without_which_no_command_passes(tmp_path: Path) -> None:
    async with up(tmp_path, "--gateway", COMBEE_GATE="approve", COMBEE_GATEWAY_PORT="0") as running:
        link = await running.says("opens once")
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
