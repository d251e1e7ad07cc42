"""A rolling upgrade from the last commit with messages of version 1: its real services are replaced under load.

The old code is taken from the repository's history; a clone without it (a shallow one) skips this visibly.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

import msgpack
import pytest

from combee.adapters.kafka import KafkaLog
from combee.backends import connection
from combee.inspection.audit import audit
from combee.ports import TopicPartition
from combee.settings.loading import load_settings
from combee_schemas import topics
from combee_schemas.topics import AnyTopic
from support.broker import Broker
from support.forked import Forked, logged, piped

OLD = "1c023247d2c70b8614790368ef5bec68cacff3b3"
"""The commit before messages of version 2."""
ROOT = Path(__file__).parents[2]
ORDER = ("publish", "scan", "shuffle", "control", "reflect")
"""As docs/guide/cluster.md says: readers first."""
PLAYBOOK, CHUNK, READY_S, DONE_S = "support/refunds", 20, 60.0, 120.0

Process = asyncio.subprocess.Process | Forked

pytestmark = pytest.mark.timeout(420)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the old code."""
    packed = subprocess.run(
        ["git", "archive", OLD, "services", "schemas"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if packed.returncode:
        pytest.skip(f"this clone has no commit {OLD[:8]}: the version before cannot be started")
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


async def _logged_anew(*arguments: str, env: Mapping[str, str], log: Path) -> Process:
    with log.open("ab") as file:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "combee.cli", *arguments),
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


async def _piped_anew(*arguments: str, env: Mapping[str, str]) -> Process:
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "combee.cli", *arguments)
    return await asyncio.create_subprocess_exec(*command, env=env, stdin=pipe, stdout=pipe, stderr=pipe)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of the code, with its own stand-in model: prompts belong to the version that writes them."""

    env: Mapping[str, str]
    folder: Path
    is_old: bool
    """Ours forks from a server that has imported it."""

    async def start(self, name: str, *arguments: str) -> Process:
        """Start a process and wait until it is ready."""
        ready, log = self.folder / f"{name}.ready", self.folder / f"{name}.log"
        env = {**self.env, "COMBEE_READY_FILE": str(ready)}
        process = await (_logged_anew if self.is_old else logged)(*arguments, env=env, log=log)
        async with asyncio.timeout(READY_S):
            while not ready.exists():
                assert process.returncode is None, log.read_text()
                await asyncio.sleep(0.1)
        return process

    async def run(self, *arguments: str, stdin: str = "") -> None:
        process = await (_piped_anew if self.is_old else piped)(*arguments, env=self.env)
        said = await process.communicate(stdin.encode())
        assert process.returncode == 0, said

    async def publish(self, number: int) -> None:
        """Publish the ``number``-th chunk: half of it runs, half of it reflections."""
        first = number * CHUNK
        lines = [_line(at) for at in range(first, first + CHUNK)]
        await self.run("publish", "-", "--playbook", PLAYBOOK, stdin="\n".join(lines))


def _line(number: int) -> str:
    if number % 2:
        return json.dumps({"reflection_id": f"r-{number}", "key_insight": f"Lesson number {number}."})
    run = {
        "trace_id": f"t-{number}",
        "task": f"Task {number}?",
        "answer": "0",
        "feedback": "Wrong: 1 was wanted.",
    }
    return json.dumps(run)


async def ended(process: Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(READY_S):
        await process.wait()


@asynccontextmanager
async def version(env: Mapping[str, str], folder: Path, code: Path | None = None) -> AsyncIterator[Version]:
    """Yield this version, or the one whose code is in a folder, beside its stand-in model."""
    folder.mkdir()  # noqa: ASYNC240 - a moment
    paths = {"PYTHONPATH": f"{code / 'services'}:{code / 'schemas'}"} if code else {}
    inherited = dict(os.environ)  # noqa: TID251 - a child needs a PATH
    alone = Version(env={**inherited, **env, **paths}, folder=folder, is_old=code is not None)
    model = await alone.start("sim", "sim", "serve", "--latency", "0.05")
    address = (folder / "sim.ready").read_text().strip()
    asks = {"COMBEE_MODEL": "simulated", "COMBEE_BASE_URL": address, "COMBEE_API_KEY": "simulated"}
    try:
        yield replace(alone, env={**alone.env, **asks})
    finally:
        await ended(model)


async def versions_written(log: KafkaLog, topic: AnyTopic) -> Counter[int]:
    """Return how many records a topic has of each version of its message."""
    counts: Counter[int] = Counter()
    for number in range(await log.partitions(topic.name)):
        async for record in log.read(TopicPartition(topic=topic.name, partition=number), 0):
            if record.value is not None:
                counts[msgpack.unpackb(record.value)["version"]] += 1
    return counts


async def test_old_services_are_replaced_one_by_one_under_load_and_nothing_is_lost_or_counts_twice(
    kafka: Broker, topic_prefix: str, old: Path, tmp_path: Path
) -> None:
    env = {
        "COMBEE_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "COMBEE_TOPIC_PREFIX": topic_prefix,
        "COMBEE_BATCH_SIZE": "10",
        "COMBEE_MAX_WAIT_S": "2",
        "COMBEE_DATA_DIR": str(tmp_path / "data"),
    }
    settings = load_settings(bootstrap_servers=kafka.bootstrap_servers, topic_prefix=topic_prefix)
    log = KafkaLog(connection(settings, kafka.bootstrap_servers))
    running: dict[str, Process] = {}
    try:
        async with (
            version(env, tmp_path / "before", old) as before,
            version(env, tmp_path / "after") as after,
        ):
            await before.run("topics", "create")
            for role in ORDER:
                running[role] = await before.start(role, "worker", role, "--slot", "0")
            await before.publish(0)
            await after.run("topics", "create")
            await _applied(log, CHUNK)

            for number, role in enumerate(ORDER, 1):
                await before.publish(number)
                await ended(running[role])
                running[role] = await after.start(role, "worker", role, "--slot", "0")
            await after.publish(len(ORDER) + 1)
            total = (len(ORDER) + 2) * CHUNK
            await _applied(log, total)
            report = await audit(log)
            assert (report.applied, report.lost, report.double, report.violations) == (total, 0, 0, ())
            for topic in (topics.TRACES, topics.REFLECTIONS, topics.BATCHES, topics.UPDATES, topics.HISTORY):
                assert set(await versions_written(log, topic)) == {1, 2}, topic.name
            for process in running.values():
                await ended(process)
            assert {role: process.returncode for role, process in running.items()} == dict.fromkeys(ORDER, 0)
    finally:
        for process in running.values():
            if process.returncode is None:
                process.kill()
        await log.close()


async def _applied(log: KafkaLog, count: int) -> None:
    """Wait until so many reflections are in playbooks."""
    async with asyncio.timeout(DONE_S):
        while (await audit(log)).applied < count:  # noqa: ASYNC110 - the topics are all there is to look at
            await asyncio.sleep(0.5)
