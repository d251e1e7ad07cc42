"""The demo does the main job, says that it is simulated, and leaves nothing behind."""

import asyncio
import signal
from pathlib import Path

import pytest

from support.cli import all_gone, combee, descendants, start_anew

SMALL = ("demo", "--questions", "120", "--latency", "0.05")
DEADLINE_S = 120.0
"""On a busy machine each part of a stack takes seconds."""


@pytest.mark.timeout(150)
async def test_demo_learns_and_ends_with_a_clean_ledger(tmp_path: Path) -> None:
    ended = await combee(*SMALL, data_dir=tmp_path)

    assert ended.code == 0, ended.err
    assert "ledger: clean" in ended.out
    assert ended.out.count("model calls=") == 3
    assert "before learning: simulated accuracy 0.0%" in ended.out
    assert "after learning:  simulated accuracy" in ended.out
    assert "120 applied" in ended.out


@pytest.mark.timeout(2 * DEADLINE_S + 60)
async def test_interrupted_demo_leaves_no_process_behind(tmp_path: Path) -> None:
    process = await start_anew(*SMALL, "--latency", "2", data_dir=tmp_path)
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        await process.stdout.readuntil(b"services")
    family = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(DEADLINE_S):
        await process.communicate()

    assert len(family) >= 7
    assert process.returncode == 130
    assert await all_gone(family) == []
