"""The broker's disk is full, and is given room again."""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from support.faults.brokers import own_broker
from support.faults.cluster import ROLES
from support.faults.kafka import FragileKafka
from support.faults.plugin import Survives
from support.faults.run import Fault, Run

DISK_BYTES = 256 << 20
BLOCK = b"\x00" * (1 << 20)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    mounted = subprocess.run(["mount", *options], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("needs the right to mount a small tmpfs")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path) -> None:
    """Take all the room there is."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(BLOCK)


def disk_full(kafka: FragileKafka, disk: Path) -> Fault:
    """Fill the disk until the broker gives up; make room, and start it again."""

    async def fault(run: Run) -> None:
        await run.reach(run.moments(1, high=0.4)[0])
        filler = disk / "filler"
        await asyncio.to_thread(fill, filler)
        node = kafka._nodes[0]
        async with asyncio.timeout(60):
            while node.alive:
                await asyncio.to_thread(fill, filler)  # whatever it freed meanwhile
                await asyncio.sleep(0.2)
        filler.unlink()
        await kafka.restart_node(1)
        run.note_fault(*ROLES)

    return fault


@pytest.mark.timeout(300)
async def test_full_disk(small_disk: Path, machine_env: dict[str, str], survives: Survives) -> None:
    async with own_broker(small_disk, machine_env) as kafka:
        await survives(kafka.bootstrap_servers, "disk full", disk_full(kafka, small_disk))
