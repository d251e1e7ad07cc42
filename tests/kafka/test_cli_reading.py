"""The reading verbs as processes of their own, on a log that the real services have written."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from combee.adapters.clock import SystemClock
from combee.adapters.ports import Outgoing
from combee.log.inspection.tracker import Tracker
from combee_schemas import topics
from combee_schemas.reflection import Reflection
from combee_schemas.topics import outgoing
from support.broker import Broker
from support.cli import Ended, combee, start, start_anew
from support.running import nothing_waits, running_stack

NAME = "tests/reading"
COUNT = 60
STALL_S = 45.0
ACE = "## OTHERS\n[misc-00001] helpful=1 harmful=0 :: look twice\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A cluster under one prefix, as the environment of a command says it."""

    servers: str
    prefix: str
    folder: Path

    @property
    def env(self) -> dict[str, str]:
        return {"COMBEE_BOOTSTRAP_SERVERS": self.servers, "COMBEE_TOPIC_PREFIX": self.prefix}

    async def run(self, *arguments: str, stdin: str = "") -> Ended:
        return await combee(*arguments, data_dir=self.folder, stdin=stdin, **self.env)


@pytest.fixture(scope="module")
def site(kafka: Broker, tmp_path_factory: pytest.TempPathFactory) -> Site:
    made = Site(
        servers=kafka.bootstrap_servers,
        prefix=f"t{uuid4().hex[:8]}",
        folder=tmp_path_factory.mktemp("reading"),
    )
    asyncio.run(_learn(made))
    return made


async def _learn(site: Site) -> None:
    """Learn from 60 reflections in two batches; one record is no reflection."""
    new = {
        f"r{n}": Reflection(
            reflection_id=f"r{n}", playbook=NAME, key_insight=f"When asked for {n}, answer {n}."
        )
        for n in range(COUNT)
    }
    garbage = Outgoing(topic=topics.REFLECTIONS.name, key=NAME.encode(), value=b"\xc1 api_key=abcdefgh123")
    async with running_stack(site.servers, site.prefix, site.folder, latency="0", batch_size=30) as running:
        async with Tracker(running.log, NAME, SystemClock()).running() as tracker:
            await running.log.produce(garbage, *map(outgoing, new.values()))
            await running.learning().settle(tracker, new, stall_s=STALL_S)
        await nothing_waits(running.log, STALL_S)


async def test_status_counts_records_and_no_transaction_markers(site: Site) -> None:
    ended = await site.run("status", "--json")
    assert (ended.code, ended.err) == (0, "")
    found = ended.json()
    assert found["broker"] == site.servers
    assert {name: one["lag"] for name, one in found["services"].items()} == {
        "reflect": 0,
        "shuffle": 0,
        "scan": 0,
        "publish": 0,
        "control": 0,
    }
    (row,) = found["playbooks"]
    assert (row["name"], row["version"], row["in_flight"]) == (NAME, 2, 0)
    assert found["topics"]["reflections"] == {"records": COUNT + 1, "partitions": 4}


async def test_topics_are_created_once_and_checked(site: Site, topic_prefix: str) -> None:
    new = Site(servers=site.servers, prefix=topic_prefix, folder=site.folder)
    missing = await new.run("topics", "check", "--json")
    assert missing.code == 1
    assert len(missing.json()["problems"]) == len(topics.TOPICS)
    refused = await new.run("status")
    assert refused.code == 2
    assert "run 'combee topics create'" in refused.err
    created = await new.run("topics", "create", "--json")
    assert created.json() == {"created": [one.name for one in topics.TOPICS], "problems": []}
    again = await new.run("topics", "create", "--json")
    assert again.json() == {"created": [], "problems": []}
    assert (await new.run("topics", "check")).code == 0
    empty = [await new.run(*verb, "--json") for verb in (("ledger",), ("playbook", "list"), ("dlq", "list"))]
    assert [one.code for one in empty] == [0, 0, 0]
    assert empty[1].out == "[]\n"


async def test_import_names_the_remedy_where_nobody_publishes(site: Site) -> None:
    async with asyncio.timeout(90):  # a worker that has stopped stays a member until its session ends
        while True:
            ended = await site.run("playbook", "import", "tests/new", "-", "--timeout", "1", stdin=ACE)
            if "combee worker publish" in ended.err:
                break
    assert (ended.code, ended.out) == (1, "")


@asynccontextmanager
async def publishing(site: Site) -> AsyncIterator[None]:
    ready = site.folder / "publish.ready"
    ready.unlink(missing_ok=True)
    worker = await start(
        "worker",
        "publish",
        data_dir=site.folder,
        **site.env,
        COMBEE_READY_FILE=str(ready),
        COMBEE_LOG_LEVEL="error",
    )
    try:
        async with asyncio.timeout(30):
            while not ready.exists():
                assert worker.returncode is None
                await asyncio.sleep(0.05)
        yield
    finally:
        worker.terminate()
        await asyncio.wait_for(worker.communicate(), 20)


async def test_an_import_is_watched_live_and_a_second_one_changes_nothing(site: Site) -> None:
    name = "tests/imported"
    async with publishing(site):
        watch = await start(
            "playbook",
            "watch",
            name,
            "--count",
            "1",
            "--json",
            "--timeout",
            "60",
            data_dir=site.folder,
            **site.env,
        )
        assert watch.stderr is not None
        assert b"watching" in await asyncio.wait_for(watch.stderr.readline(), 30)
        first = await site.run("playbook", "import", name, "-", "--json", stdin=ACE)
        out, _ = await asyncio.wait_for(watch.communicate(), 30)
        again = await site.run("playbook", "import", name, "-", "--json", stdin=ACE)
    assert first.json() == {"name": name, "version": 1, "entries": 1, "changed": True, "format": "ace"}
    assert again.json() == {**first.json(), "changed": False}
    (line,) = out.decode().splitlines()
    seen = json.loads(line)
    assert (watch.returncode, seen["version"], seen["origin"]) == (0, 1, "import")
    assert seen["diff"] == [{"kind": "import", "entry_id": "misc-00001", "detail": ""}]
    assert (await site.run("playbook", "export", name)).out == ACE
    assert (await site.run("ledger")).code == 0


async def test_ctrl_c_ends_a_watch_well(site: Site) -> None:
    watch = await start_anew("playbook", "watch", NAME, data_dir=site.folder, **site.env)
    assert watch.stderr is not None
    await asyncio.wait_for(watch.stderr.readline(), 30)
    watch.send_signal(2)
    _, err = await asyncio.wait_for(watch.communicate(), 20)
    assert (watch.returncode, err) == (0, b"")


async def test_the_ledger_reads_on_where_it_ended(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "checkpoint"
    verb = ("ledger", "--json", "--checkpoint", str(file))
    first, second, full = [await site.run(*verb, *more) for more in ((), (), ("--full",))]
    assert [ended.code for ended in (first, second, full)] == [0, 0, 0]
    assert [ended.err for ended in (first, second, full)] == ["", "", ""]
    found = [ended.json() for ended in (first, second, full)]
    assert [json.pop("continued_from_ms") is not None for json in found] == [False, True, False]
    assert found[0] == found[1] == found[2]
    file.write_text("{}")
    third = await site.run(*verb)
    assert (third.code, third.json()["continued_from_ms"]) == (0, None)
    assert "is unusable" in third.err


@pytest.mark.timeout(120)
async def test_top_draws_on_a_terminal_until_q(site: Site) -> None:
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
