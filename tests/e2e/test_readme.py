"""Every command that README.md shows runs as it stands there, as a new user would run it, in that order.

Only what nobody else has is put in the place of what is named there: a model, a key, two brokers. The stand-in
model (a simulation) answers in the place of real ones.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from combee.sim.options import SimOptions
from combee.sim.server import running
from support.broker import Broker
from support.shown import ROOT, blocks, command_lines
from support.terminal import Terminal

PARTS = re.compile(r"^## ", re.MULTILINE)


def _parts() -> Iterator[list[str]]:
    """Yield the commands of each section."""
    for part in PARTS.split((ROOT / "README.md").read_text("utf-8")):
        found = [line.split("  #")[0].strip() for line in command_lines(part)]
        if commands := [line for line in found if not line.startswith("make ")]:
            yield commands


def _placed(line: str, places: dict[str, str], used: set[str]) -> str:
    for shown, placed in places.items():
        if shown in line:
            used.add(shown)
            line = line.replace(shown, placed)
    return line


def _clone(folder: Path) -> Path:
    """Return a folder with what a clone has after ``make demo``, as far as the commands need it."""
    folder.mkdir()
    shutil.copytree(ROOT / "examples", folder / "examples")
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


@pytest.mark.timeout(480)
async def test_every_command_of_the_readme_runs(kafka: Broker, topic_prefix: str, tmp_path: Path) -> None:
    clone, used = _clone(tmp_path / "combee"), set[str]()
    async with running(SimOptions()) as stand_in:
        places = {
            "openai/gpt-4.1-mini": "openai/simulated",
            "my-model": "simulated",
            "http://127.0.0.1:8000/v1": stand_in,
            "sk-...": "not-a-key",
            "kafka-1:9092,kafka-2:9092": kafka.bootstrap_servers,
        }
        terminal = Terminal.opened(
            clone,
            clone / ".venv" / "bin",
            COMBEE_DATA_DIR=str(tmp_path / "data"),
            COMBEE_TOPIC_PREFIX=topic_prefix,
            COMBEE_BASE_URL=stand_in,
            COMBEE_LOG_JSON="true",
        )
        for commands in _parts():
            try:
                for line in commands:
                    await terminal.run(_placed(line, places, used))
                    if line.startswith("export OPENAI_BASE_URL"):
                        del terminal.env["COMBEE_BASE_URL"]  # it would win
            finally:
                await terminal.close()

    assert used == places.keys()
    assert len(terminal.done) > 20


def test_no_command_hides_where_this_test_does_not_look() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    lines = [line.strip() for line in text.splitlines()]
    looked_at = {line.strip() for block in blocks(text) for line in block.splitlines()}

    assert [line for line in lines if line.startswith(("combee ", "$ ")) and line not in looked_at] == []
