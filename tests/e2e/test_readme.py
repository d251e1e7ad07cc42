"""Every command that README.md and the first pages of the guide show runs as it stands there, in that order.

README.md's are typed into one shell, beside the ``combee up`` that the page starts; those of the guide's first pages,
which go on from one to the next, into another. A section that says "a deployment of its own" is run alone, in a new
shell. Only there is something put in the place of what nobody else has: a model, a key, two brokers. The stand-in
model (a simulation) answers in the place of real ones. README.md's processes start anew; those of other pages fork.
"""

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

from combee_sim.server.server import running
from combee_sim.server.standin import SimOptions
from support.broker import Broker
from support.forked import typed
from support.shown import ROOT, blocks, command_lines
from support.terminal import terminal

HEADING = re.compile(r"^#{2,3} (.+)$", re.MULTILINE)
OWN = "a deployment of its own"
GUIDE = ROOT / "docs" / "guide"
WALKS = {
    "README": (ROOT / "README.md",),
    "guide": (ROOT / "docs" / "index.md", GUIDE / "playbooks.md", GUIDE / "evaluation.md"),
}
"""Pages whose commands are typed one after the other into one shell."""
PAGES = (*(page for pages in WALKS.values() for page in pages), GUIDE / "model.md", GUIDE / "cluster.md")
MODEL, SERVER, BROKERS = "openai/gpt-4.1-mini", "http://127.0.0.1:8000/v1", "kafka-1:9092,kafka-2:9092"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    title: str
    commands: tuple[str, ...]
    alone: bool


def sections(page: Path) -> Iterator[Section]:
    """Yield the sections that show commands; what ``make`` does is tested elsewhere."""
    parts = [page.stem, *HEADING.split(page.read_text("utf-8"))]
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        lines = (line.split("  #")[0].strip() for line in command_lines(text))
        if commands := tuple(line for line in lines if not line.startswith("make ")):
            yield Section(title=title, commands=commands, alone=OWN in " ".join(text.split()).lower())


BESIDE = {
    name: [section for page in pages for section in sections(page) if not section.alone]
    for name, pages in WALKS.items()
}
ALONE = [section for page in PAGES for section in sections(page) if section.alone]


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder with what a clone has after ``make demo``; one at a time, for pages name the gateway's port."""
    folder = tmp_path / "combee"
    shutil.copytree(ROOT / "examples", folder / "examples")
    (folder / ".venv").symlink_to(sys.prefix)
    with FileLock(Path(tempfile.gettempdir()) / "combee-pages.lock", timeout=250):
        yield folder


@pytest.mark.timeout(420)
@pytest.mark.parametrize(("walk", "at_least"), [("README", 8), ("guide", 25)])
async def test_pages_work_literally_from_top_to_bottom_in_one_shell_beside_what_they_start(
    walk: str, at_least: int, clone: Path, tmp_path: Path
) -> None:
    forked = nullcontext("") if walk == "README" else typed()
    async with forked as words, terminal(clone, words, COMBEE_DATA_DIR=str(tmp_path / "data")) as shell:
        for section in BESIDE[walk]:
            for line in section.commands:
                await shell.run(line)
        done = shell.done

    assert [line for line in done if line.startswith("combee up")] == ["combee up --simulated"]
    assert len(done) >= at_least


@pytest.mark.timeout(420)
@pytest.mark.parametrize("section", ALONE, ids=lambda section: section.title)
async def test_a_section_that_needs_a_deployment_of_its_own_works_alone(
    section: Section, kafka: Broker, topic_prefix: str, clone: Path, tmp_path: Path
) -> None:
    async with running(SimOptions()) as stand_in:
        places = {
            MODEL: "openai/simulated",
            "my-model": "simulated",
            SERVER: stand_in,
            "sk-...": "not-a-key",
            BROKERS: kafka.bootstrap_servers,
        }
        env = {
            "COMBEE_DATA_DIR": str(tmp_path / "data"),
            "COMBEE_TOPIC_PREFIX": topic_prefix,
            "COMBEE_GATEWAY_PORT": "0",
            "COMBEE_LOG_JSON": "true",
            "OPENAI_BASE_URL": stand_in,
        }
        async with typed() as words, terminal(clone, words, **env) as shell:
            await shell.run("source .venv/bin/activate")
            for line in section.commands:
                for shown, placed in places.items():
                    line = line.replace(shown, placed)  # noqa: PLW2901
                await shell.run(line)


def test_what_a_section_needs_that_others_have_not_is_said_in_it() -> None:
    alone = "\n".join(line for section in ALONE for line in section.commands)
    beside = "\n".join(line for walk in BESIDE.values() for section in walk for line in section.commands)
    for rare in (MODEL, SERVER, BROKERS, "sk-..."):
        assert rare in alone
        assert rare not in beside


def test_a_page_that_is_not_walked_has_only_sections_that_run_alone() -> None:
    walked = {page for pages in WALKS.values() for page in pages}
    beside = [section for page in set(PAGES) - walked for section in sections(page) if not section.alone]
    assert beside == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_command_hides_where_this_test_does_not_look(page: Path) -> None:
    text = page.read_text("utf-8")
    lines = [line.strip() for line in text.splitlines()]
    looked_at = {line.strip() for block in blocks(text) for line in block.splitlines()}

    assert [line for line in lines if line.startswith(("combee ", "$ ")) and line not in looked_at] == []
