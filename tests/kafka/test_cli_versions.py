"""A playbook in people's hands, on a real broker: edited, labelled, taken back, deleted; replayed; watched."""

import asyncio
import json
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from combee.clock import SystemClock
from combee.inspection.tracker import Tracker
from combee_schemas.reflection import Reflection
from combee_schemas.topics import outgoing
from support.broker import Broker
from support.cli import Ended, combee, start
from support.running import running_stack

NAME = "tests/versions"
COUNT = 24
STALL_S = 45.0
ACE = "## OTHERS\n[misc-00001] helpful=1 harmful=0 :: look twice\n[misc-00002] helpful=0 harmful=0 :: hurry\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A cluster under one prefix, as the environment of a command says it."""

    servers: str
    prefix: str
    folder: Path

    @property
    def env(self) -> dict[str, str]:
        return {"COMBEE_BOOTSTRAP_SERVERS": self.servers, "COMBEE_TOPIC_PREFIX": self.prefix}

    async def run(self, *arguments: str, stdin: str = "", **env: str) -> Ended:
        return await combee(*arguments, data_dir=self.folder, stdin=stdin, **self.env, **env)

    async def json(self, *arguments: str, **env: str) -> Any:
        ended = await self.run(*arguments, "--json", **env)
        assert ended.code == 0, ended.err
        return json.loads(ended.out)


@pytest.fixture
def site(kafka: Broker, topic_prefix: str, tmp_path: Path) -> Site:
    return Site(servers=kafka.bootstrap_servers, prefix=topic_prefix, folder=tmp_path)


@asynccontextmanager
async def publishing(site: Site) -> AsyncIterator[None]:
    ready = site.folder / "publish.ready"
    quiet = {"COMBEE_READY_FILE": str(ready), "COMBEE_LOG_LEVEL": "error"}
    worker = await start("worker", "publish", data_dir=site.folder, **site.env, **quiet)
    try:
        async with asyncio.timeout(60):
            while not ready.exists():
                assert worker.returncode is None
                await asyncio.sleep(0.05)
        yield
    finally:
        worker.terminate()
        await asyncio.wait_for(worker.communicate(), 30)


def editor(folder: Path, script: str) -> str:
    path = folder / "editor"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(stat.S_IRWXU)
    return str(path)


@pytest.mark.timeout(240)
async def test_edit_promote_rollback_diff_delete_and_back(site: Site) -> None:
    assert (await site.run("topics", "create")).code == 0
    async with publishing(site):
        first = await site.run("playbook", "import", NAME, "-", "--json", stdin=ACE)
        assert first.json()["version"] == 1
        editing = editor(site.folder, "sed -i -e 's/hurry/take your time/' \"$1\"")
        edited = await site.json("playbook", "edit", NAME, VISUAL="", EDITOR=editing)
        assert (edited["version"], [one["kind"] for one in edited["diff"]]) == (2, ["update"])

        await site.json("playbook", "promote", NAME, "production", "1")
        found = await site.json("playbook", "diff", NAME, "production", "latest")
        (change,) = found["changed"]
        assert (found["from"], found["to"]) == (1, 2)
        assert (change["before"], change["after"]) == ("hurry", "take your time")

        back = await site.json("playbook", "rollback", NAME, "production", "--id", "back")
        assert await site.json("playbook", "rollback", NAME, "production", "--id", "back") == {
            **back,
            "changed": False,
        }
        assert (back["version"], back["restored"], back["changed"]) == (3, 1, True)
        assert (await site.run("playbook", "export", NAME)).out == ACE
        assert (await site.json("playbook", "diff", NAME, "1", "3"))["changed"] == []

        asked = await site.run("playbook", "delete", NAME, stdin="n\n")
        assert asked.code == 1
        assert f"delete {NAME} (version 3, 2 entries)?" in asked.err
        await site.json("playbook", "delete", NAME, "--yes")
        assert await site.json("playbook", "list") == []
        assert await site.json("playbook", "labels") == []
    async with publishing(site):
        again = await site.json("playbook", "rollback", NAME, "2")
        assert (again["version"], again["entries"]) == (5, 2)
        origins = (await site.json("playbook", "show", NAME, "--history"))["versions"]
        assert [one["origin"] for one in origins] == ["import", "edit", "rollback", "delete", "rollback"]
    assert (await site.run("ledger")).code == 0


@pytest.mark.timeout(240)
async def test_a_replay_on_a_real_broker_has_identical_plans_and_contents(site: Site) -> None:
    new = {
        f"r{n}": Reflection(
            reflection_id=f"r{n}", playbook=NAME, key_insight=f"When asked for {n}, answer {n}."
        )
        for n in range(COUNT)
    }
    async with (
        running_stack(site.servers, site.prefix, site.folder, latency="0", batch_size=12) as running,
        Tracker(running.log, NAME, SystemClock()).running() as tracker,
    ):
        await running.log.produce(*map(outgoing, new.values()))
        await running.learning().settle(tracker, new, stall_s=STALL_S)
    entry = (await site.json("playbook", "show", NAME))["entries"][0]["id"]
    assert (await site.json("why", entry))["reflections"][0]["reflection"]["playbook"] == NAME
    assert (await site.json("cost", NAME))[0]["batches"] == 2
    to = f"{site.prefix}r"
    found = await site.json("replay", NAME, "--to", to)
    assert found == {
        "playbook": NAME,
        "from": site.prefix,
        "to": to,
        "versions": 2,
        "batches": 2,
        "plans_differ": [],
        "contents_differ": [],
        "model_calls": 0,
    }
    there = Site(servers=site.servers, prefix=to, folder=site.folder)
    exported = [(await one.run("playbook", "export", NAME)).out for one in (site, there)]
    assert exported[0] == exported[1] != ""
    assert (await there.run("ledger")).code == 0


@pytest.mark.timeout(120)
async def test_top_draws_on_a_terminal_until_q(site: Site) -> None:
    assert (await site.run("topics", "create")).code == 0
    here, there = os.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "combee.cli", "top"),
        env={**os.environ, **site.env, "TERM": "xterm", "COLUMNS": "140", "LINES": "40"},  # noqa: TID251 - a PATH
        stdin=there,
        stdout=there,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(there)
    try:
        seen = await asyncio.wait_for(asyncio.to_thread(_read_until, here, b"dead-letters"), 60)
        assert site.prefix.encode() in seen
        os.write(here, b"q")
        _, err = await asyncio.wait_for(process.communicate(), 30)
        assert (process.returncode, err) == (0, b"")
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
            await process.wait()
        os.close(here)


def _read_until(source: int, wanted: bytes) -> bytes:
    seen = b""
    while wanted not in seen:
        seen += os.read(source, 65_536)
    return seen
