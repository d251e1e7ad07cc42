"""``combee forget`` killed at each of its stages on a real broker: the same command goes on, and nothing is lost."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from combee.adapters.clock import SystemClock
from combee.adapters.kafka import KafkaAdmin, KafkaLog
from combee.assembly.backends import connection, topic_problems
from combee.core.log.layout import wanted
from combee.log.archive.file import ArchiveReader
from combee.log.archive.restoring import restore
from combee.log.history import whole
from combee.process.settings.loading import Settings, load_settings
from combee_schemas import topics
from support.archives import archived
from support.broker import Broker, segments
from support.cli import environment
from support.forgetting import HONEST, SUBJECT, lived
from support.ledger import lessons
from support.site import Site

pytestmark = pytest.mark.timeout(900)
TESTS = Path(__file__).parents[1]
LAYOUT = {"partitions": 2, "scan_partitions": 3}
KILLED_S, DELETED_S = 150.0, 60.0
OLD, NEW = "{old}", "{new}"
CHAINS = {
    "copy": ("copying", "copied", "rewriting", "rewritten"),
    "write": (
        *(f"after creating {NEW}.restoring", f"after producing {NEW}.restoring"),
        *(f"before creating {NEW}.reflections", f"after producing {NEW}.reflections", "committed"),
        *(f"before creating {OLD}.restoring", f"after creating {OLD}.restoring"),
    ),
    "delete": (
        *(f"after producing {OLD}.restoring", f"after deleting {NEW}.restoring"),
        *(f"before deleting {OLD}.traces", f"after deleting {OLD}.traces", f"after deleting {OLD}.history"),
        *(f"before deleting {OLD}.restoring", f"after deleting {OLD}.restoring"),
    ),
}
"""By stage: one process after the other is killed there, each where the one before it left off."""
NOWHERE = (False, False)
STARTS = {CHAINS["write"][-1]: NOWHERE, CHAINS["delete"][0]: NOWHERE}
"""Where services start, under the old prefix or the new one, behind points at which that is another one."""
OF_SUBJECT, TAUGHT = 3, {"learned: lesson of named-in-task", "lesson 90"}
"""Runs of the subject, and lessons that rest on them alone."""


class Deployment(Site):
    """What a deployment that knows somebody has left on a broker, and an archive of it."""

    def __init__(self, kafka: Broker, prefix: str, folder: Path) -> None:
        super().__init__(kafka, prefix, folder)
        self.subject, self.there = SUBJECT, f"{prefix}-left"
        self.archive = folder / "named.archive"
        self.env |= {f"COMBEE_{name.upper()}": str(count) for name, count in LAYOUT.items()}
        self.command = (
            *("forget", "--subject", SUBJECT, "--to", self.there, "--archive", str(self.archive), "--yes"),
        )

    def settings(self, prefix: str) -> Settings:
        return load_settings(bootstrap_servers=self.servers, topic_prefix=prefix, **LAYOUT)

    async def begin(self) -> None:
        """Let it stand on the broker, with nobody running."""
        await archived((await lived()).log, self.archive)
        connected = connection(self.settings(self.prefix), self.servers)
        log = KafkaLog(connected)
        try:
            await restore(
                log,
                KafkaAdmin(connected),
                self.archive,
                wanted(**LAYOUT),
                prefix=self.prefix,
                replication=1,
                clock=SystemClock(),
            )
        finally:
            await log.close()

    async def killed(self, point: str) -> None:
        """Run the command until it is killed at a point."""
        point = point.format(old=self.prefix, new=self.there)
        marker = self.folder / f"{point}.killed"
        env = {**self.env, "COMBEE_TOPIC_PREFIX": self.prefix, "PYTHONPATH": str(TESTS)}
        while not marker.exists():
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "support.failpoints.forget", point, str(marker), *self.command),
                env=environment(self.folder / "data", env),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            async with asyncio.timeout(KILLED_S):
                _, err = await process.communicate()
            assert marker.exists() or "fenced" in err.decode(), f"{point}: {err.decode()}"
        assert process.returncode == -signal.SIGKILL

    async def can_start(self, prefix: str) -> bool:
        """Return whether services would start under a prefix."""
        settings = self.settings(prefix)
        return not await topic_problems(settings, connection(settings, self.servers))

    async def lessons(self, prefix: str) -> list[set[str]]:
        """Return what each version says."""
        log = KafkaLog(connection(self.settings(prefix), self.servers))
        try:
            versions = [topics.HISTORY.read(record) for record in await whole(log, topics.HISTORY)]
        finally:
            await log.close()
        return [{entry.content for entry in version.entries} for version in versions]


@pytest.mark.parametrize("stage", CHAINS)
async def test_killed_again_and_again_the_same_command_goes_on_and_nothing_is_lost(
    kafka: Broker, topic_prefix: str, tmp_path: Path, stage: str
) -> None:
    if segments(kafka) is None:
        pytest.skip("this machine does not reach the files of a broker elsewhere")
    site = Deployment(kafka, topic_prefix, tmp_path)
    await site.begin()
    before = await site.json("ledger")
    versions = await site.lessons(site.prefix)
    assert {name.partition(".")[0] for name, codec in site.found() if codec != "ours"} == {site.prefix}

    for point in CHAINS[stage]:
        await site.killed(point)
        old, new = await site.can_start(site.prefix), await site.can_start(site.there)
        assert (old, new) == STARTS.get(point, (False, True) if stage == "delete" else (True, False)), point

    await site.json(*site.command)
    async with asyncio.timeout(DELETED_S):
        while found := site.found():
            assert {name.partition(".")[0] for name, _ in found} == {site.prefix}, found
            await asyncio.sleep(0.5)
    here = {file.name for file in site.folder.rglob("*.*") if file.suffix != ".killed"}
    assert here == {site.archive.name}, "no copy stays"
    with ArchiveReader(site.archive) as archive:
        assert [record.topic for record in archive.records()].count(topics.ERASURES.name) == 1

    assert (await site.can_start(site.prefix), await site.can_start(site.there)) == (False, True)
    after = await site.json("ledger", prefix=site.there)
    assert (after["violations"], after["lost"], after["double"]) == ([], 0, 0)
    assert after["reflections"] == before["reflections"] - OF_SUBJECT
    assert len(after["erasures"]) == 1
    for said, left in zip(versions, await site.lessons(site.there), strict=True):
        assert left == {text for text in said - TAUGHT if SUBJECT not in text.casefold()}
        assert lessons(range(HONEST)) & said <= left
