"""What ``combee top`` draws, and the keyboard that ends it."""

import asyncio
import io
import os
import re
import sys

import pytest
from rich.console import Console

from combee.cli.top import verb
from combee.cli.top.view import fitted, frame
from combee.core.log.live.values import (
    LiveBatch,
    LiveDeadLetter,
    LiveNode,
    LivePlaybook,
    LiveVersion,
    Snapshot,
    Stage,
)
from combee_schemas.plan import Branch, BranchSettings
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME, outgoing, reflection
from support.reading import learned_from, run, run_json, use_log
from support.rows import each_row

pytestmark = pytest.mark.usefixtures("quick_polls")


def drawn(snapshot: Snapshot, width: int = 160) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(frame(snapshot, broker="127.0.0.1:9092", prefix="combee", width=width))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def node(level: int, index: int, parent: str, **fields: object) -> LiveNode:
    return LiveNode.model_validate(
        {"node_id": f"{level}.{index}", "level": level, "index": index, "parent_id": parent, **fields}
    )


ROOT = node(1, 0, "", state="waiting")
DONE = node(0, 0, "1.0", state="done", status="ok", operations=4, tokens_in=900, tokens_out=100)
SPOILT = node(0, 1, "1.0", state="done", status="failed", reason="no usable [bold]reply")
ASKING = node(0, 2, "1.0", state="ready")
BATCH = LiveBatch(
    batch_id="b",
    playbook=NAME,
    sequence=7,
    reflections=9,
    reason="size",
    shape_reason="3 groups: the square root of 9",
    nodes=(DONE, SPOILT, ASKING, ROOT),
)
BOOK = LivePlaybook(
    name=NAME,
    version=6,
    entries=31,
    waiting=5,
    batch_size=10,
    batch_size_reason="plateau: 10 is as quick as 20",
    retention=0.97,
    spend_tokens=12_345,
    spend_cost=0.5,
    versions=(
        LiveVersion(
            version=6, at_ms=1_764_547_200_000, entries=31, reflections=9, retention=0.97, seconds=2.5
        ),
    ),
)
STAGE = Stage(name="reflections", offsets=1200, rate_per_s=12.5, lag=30, lag_s=2.5)
SNAPSHOT = Snapshot(revision=3, at_ms=1_764_547_200_000, stages=(STAGE,), playbooks=(BOOK,), batches=(BATCH,))


def test_a_frame_shows_lag_window_size_and_why_retention_cost_and_versions() -> None:
    out = drawn(SNAPSHOT)
    assert "combee top  127.0.0.1:9092  combee  2025-12-01 00:00:00 UTC" in out
    assert re.search(r"reflections +1,200 +12\.5 +30 +2\.5", out)
    for told in ("██████░░░░░░ 5/10", "plateau: 10 is as quick as 20", "97 %", "12,345", "0.50"):
        assert told in out
    assert "newest versions" in out
    assert "2025-12-01 00:00:00  support/refunds" in out


def test_a_frame_shows_the_tree_of_the_running_batch_node_by_node() -> None:
    out = drawn(SNAPSHOT)
    assert "batch 7 of support/refunds: 9 reflections, closed by size; 2 of 4 nodes done" in out
    assert "3 groups: the square root of 9" in out
    lines = [line.strip() for line in out.splitlines() if " node " in line]
    assert lines == [
        "○ level 1 node 0  waiting",
        "├── ● level 0 node 0  ok, 4 operations, 1,000 tokens below",
        "├── ● level 0 node 1  failed, 0 operations, 0 tokens below  no usable [bold]reply",
        "└── ◐ level 0 node 2  asking",
    ]


@pytest.mark.parametrize("width", [80, 160])
def test_a_branch_stands_below_its_playbook_with_what_it_does_otherwise(width: int) -> None:
    branch = Branch(of=BOOK.name, version=3, sequence=2, settings=BranchSettings(batch_size=5, carry=False))
    line = LivePlaybook(
        name=f"{BOOK.name}@exp", version=2, waiting=3, batch_size=5, branch=branch, paused="9 of 9 tokens"
    )
    out = drawn(SNAPSHOT.model_copy(update={"playbooks": (BOOK, line)}), width=width)
    assert ("└ @exp" if width == 80 else f"{BOOK.name}@exp ") in out
    assert "3/5" in out
    assert f"paused: {BOOK.name}@exp: 9 of 9 tokens" in out
    assert ("forked from version 3: batch_size 5, carry off" in out) == (width == 160)


def test_a_fork_is_no_batch_of_reflections() -> None:
    fork = BATCH.model_copy(update={"reason": "branch", "playbook": "a@exp", "sequence": 1})
    assert "batch 1 of a@exp: begins a branch; " in drawn(SNAPSHOT.model_copy(update={"batches": (fork,)}))


def test_a_node_that_was_left_out_is_no_longer_awaited() -> None:
    late = node(0, 2, "1.0", state="left_out")
    out = drawn(
        SNAPSHOT.model_copy(
            update={"batches": (BATCH.model_copy(update={"nodes": (DONE, SPOILT, late, ROOT)}),)}
        )
    )
    assert "3 of 4 nodes done" in out
    assert "» level 0 node 2  left out" in out


def test_a_wide_batch_is_drawn_a_line_per_level() -> None:
    leaves = tuple(node(0, n, "1.0", state="done" if n < 30 else "ready") for n in range(40))
    out = drawn(
        SNAPSHOT.model_copy(update={"batches": (BATCH.model_copy(update={"nodes": (*leaves, ROOT)}),)})
    )
    assert f"level 0    30/40  {'●' * 30}{'◐' * 10}" in out
    assert "level 1     0/1  ○" in out


def test_the_oldest_batch_in_flight_is_the_one_that_is_drawn() -> None:
    newer = BATCH.model_copy(update={"sequence": 8})
    done = BATCH.model_copy(update={"sequence": 6, "version": 5})
    assert "batch 7 of" in drawn(SNAPSHOT.model_copy(update={"batches": (newer, BATCH, done)}))
    assert "became version 5" in drawn(SNAPSHOT.model_copy(update={"batches": (done,)}))


NAMES = ("traces", "reflections", "batches", "scan.0", "scan.1", "scan.2", "scan.3", "updates", "playbooks")


@each_row("width", [80, 160])
@each_row("name", [NAME, "a-tenant/a-team/" + "long-name-" * 18])
def test_a_full_frame_fits_80_by_24_with_something_of_every_part(width: int, name: str) -> None:
    stages = tuple(STAGE.model_copy(update={"name": one}) for one in NAMES)
    idle = tuple(one.model_copy(update={"offsets": 0}) if one.name == "scan.3" else one for one in stages)
    book = BOOK.model_copy(update={"name": name, "batch_size_reason": "because " * 30})
    letter = LiveDeadLetter(service="shuffle", reason="not msgpack " * 20, origin="reflections[0]@7", at_ms=1)
    nodes = (ROOT, *(node(0, index, "1.0", state="ready") for index in range(100)))
    full = SNAPSHOT.model_copy(
        update={
            "stages": idle,
            "playbooks": (book,) * 40,
            "playbooks_total": 40,
            "batches": (BATCH.model_copy(update={"playbook": name, "nodes": nodes}),),
            "dead_letters": 9,
            "dead_letters_recent": (letter,) * 9,
        }
    )
    console = Console(file=io.StringIO(), width=width, height=24, color_system=None)
    lines = console.render_lines(fitted(full, console, broker="127.0.0.1:9092", prefix="combee"), pad=False)
    shown = ["".join(part.text for part in one).rstrip() for one in lines]
    assert len(shown) <= 24
    assert max(map(len, shown)) <= width
    parts = ("combee top", " flow", " playbook", "batch 7", "level 0", " newest versions", "dead letters")
    assert [part for part in parts if not any(one.startswith(part) for one in shown)] == []
    headers = " ".join(one for one in shown if one.startswith((" flow", " playbook ", " newest")))
    assert "…" not in headers
    assert "scan.3" not in "".join(shown)


def test_an_empty_deployment_has_a_frame() -> None:
    assert "flow" in drawn(Snapshot(revision=0, at_ms=0))


def test_names_and_reasons_of_others_cannot_steer_the_terminal() -> None:
    evil = BOOK.model_copy(update={"batch_size_reason": "\x1b[2J[red]boo"})
    out = drawn(SNAPSHOT.model_copy(update={"playbooks": (evil,)}))
    assert "\x1b" not in out
    assert "[2J[red]boo" in out


def test_one_frame_of_a_running_deployment_has_its_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = Deployment(batch_size=10)

    async def close_a_window() -> None:
        async with deployment.running(["shuffle"]):
            await deployment.log.produce(*(outgoing(reflection(n)) for n in range(14)))
            await deployment.until(lambda: bool(ledger.batches(deployment.log)))

    asyncio.run(close_a_window())
    deployment.log._store.notify()
    use_log(monkeypatch, deployment.log)
    out = run("top", "--once").stdout
    assert f"batch 1 of {NAME}: 10 reflections" in out
    assert "◐ level 0 node 0  asking" in out
    assert "4/40" in out


def test_a_frame_as_json_is_the_live_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    learned_from(monkeypatch).log._store.notify()
    found = Snapshot.model_validate(run_json("top"))
    assert [(one.name, one.version) for one in found.playbooks] == [(NAME, 2)]
    assert [(one.sequence, one.version) for one in found.batches] == [(2, 2), (1, 1)]


async def test_q_ends_it_and_leaves_the_terminal_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    import termios  # noqa: PLC0415 - Unix only

    here, there = os.openpty()
    drawn_times = 0

    async def changed(_since: int, _timeout_s: float) -> int:
        await asyncio.Event().wait()
        raise AssertionError

    def seen() -> str:
        nonlocal drawn_times
        drawn_times += 1
        os.write(here, b"xq")
        return "frame"

    monkeypatch.setattr(verb, "FRAME_S", 0.001)
    with os.fdopen(there) as keyboard:
        before = termios.tcgetattr(keyboard)
        monkeypatch.setattr(sys, "stdin", keyboard)
        async with asyncio.timeout(5):
            await verb._screen(changed, seen, 1.0)
        assert termios.tcgetattr(keyboard) == before
    os.close(here)
    assert drawn_times == 1
