"""The demo does the main job, says that it is simulated, and leaves nothing behind."""

import asyncio
import re
import signal
from pathlib import Path

import pytest

from support.cli import all_gone, combee, descendants, start_anew

SMALL = ("demo", "--questions", "120", "--agents", "4", "--latency", "0.25")
DEADLINE_S = 120.0
"""On a busy machine each part of a stack takes seconds."""


@pytest.mark.timeout(150)
async def test_the_demo_shows_success_rising_three_lessons_the_cost_and_a_clean_ledger(
    tmp_path: Path,
) -> None:
    ended = await combee(*SMALL, data_dir=tmp_path, COLUMNS="80")

    assert ended.code == 0, ended.err
    words = " ".join(ended.out.split())
    shares = [int(share) for share in re.findall(r": success (\d+) % ", ended.out)]
    assert shares[0] == 0
    assert shares[-1] > 30  # on a busy machine many tickets are answered before the first version
    assert "without a playbook: success 0 %" in ended.out
    assert re.search(r"knew 0 of 24 house rules; after \d+ s they know \d\d of 24 \(simulated", words)
    assert words.count("is right (run t-") == 3
    assert re.search(r"Cost \$0\.\d\d, \$0\.\d{3} a lesson: ", words)
    assert "Ledger clean: 120 reflections = 120 in the playbook" in words
    assert "combee up --simulated" in words
    assert max(len(line.rstrip()) for line in ended.out.splitlines()) <= 80
    assert ended.err == ""


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
