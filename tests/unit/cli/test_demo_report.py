"""The demo's output: success by version while it runs, and half a page that a reader judges at a glance."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from combee.cli.demo.report import DemoResult, chart, live_view, plain_rows, report, three
from combee.core.evaluation.outcomes.report import curve_of
from combee.core.log.ledger.report import Calls, Horizon, LedgerReport
from combee.core.playbook.versions import empty
from combee.log.inspection.learned import Report
from combee.log.inspection.lineage import Lineage, Source
from combee_schemas.base import Usage
from combee_schemas.outcome import Figures, OutcomeStatistics, VersionOutcomes
from combee_schemas.playbook import Entry
from combee_schemas.trace import Trace
from combee_sim.family.desk import RULES, lessons
from combee_sim.fleet import Accuracy

ENTRIES = tuple(
    Entry(id=f"str-{n:05}", section="OTHERS", content=text, created_version=1, evidence_count=3)
    for n, text in enumerate(lessons(), 1)
)
PLAYBOOK = empty("demo/desk").model_copy(update={"version": 3, "entries": ENTRIES})
HALF_A_PAGE = 32
"""Lines: what a terminal shows at once."""


def statistics(*runs: tuple[int, int]) -> OutcomeStatistics:
    versions = (
        VersionOutcomes(version=n, figures=Figures(runs=right + wrong, successes=right, failures=wrong))
        for n, (right, wrong) in enumerate(runs)
    )
    return OutcomeStatistics(line="demo/desk", versions=tuple(versions))


def lesson(entry: Entry) -> Lineage:
    """Return a lesson that a right run confirmed, and that a wrong one taught."""
    rule = RULES[lessons().index(entry.content)]
    traces = (
        Trace(trace_id=f"t-{verdict}", playbook="demo/desk", task=f"Service desk, order 1234: {rule.ask}",
              answer=rule.usual, target=rule.answer, success=verdict == "right")
        for verdict in ("right", "wrong")
    )  # fmt: skip
    sources = [
        Source(reflection_id="r", line="demo/desk", sequence=1, taught_by=None, reflection=None, trace=trace)
        for trace in traces
    ]
    return Lineage(playbook="demo/desk", version=3, entry=entry, sources=sources)


RESULT = DemoResult(
    learned=Report(playbook=PLAYBOOK, usage=Usage(calls=310, tokens_in=1_000_000, tokens_out=500_000)),
    curve=curve_of(statistics((0, 80), (12, 24), (30, 2))),
    added={1: 14, 2: 10},
    lessons=tuple(map(lesson, ENTRIES[::8])),
    before=Accuracy(right=0, asked=24),
    after=Accuracy(right=24, asked=24),
    seconds=13.6,
)
LEDGER = LedgerReport(
    reflections=240,
    applied=240,
    pending=0,
    dead_lettered=0,
    lost=0,
    double=0,
    violations=(),
    model_calls=Calls.of(Usage(), 0),
    horizon=Horizon(first_retained={}),
)


def printed(columns: int, *, is_terminal: bool, result: DemoResult = RESULT) -> str:
    out = io.StringIO()
    console = Console(file=out, width=columns, force_terminal=is_terminal, color_system=None, highlight=False)
    report(result, LEDGER, console)
    return out.getvalue()


@pytest.mark.parametrize("columns", [80, 120])
def test_the_half_page_has_an_outcome_lessons_their_runs_a_price_the_ledger_and_two_commands(
    columns: int,
) -> None:
    shown = printed(columns, is_terminal=True)
    words = " ".join(shown.split())
    assert "Before, the agents knew 0 of 24 house rules; after 14 s they know 24 of 24 (simulated" in words
    for entry in ENTRIES[::8]:
        assert entry.content in words
    assert words.count("is right (run t-wrong, and 2 more)") == 3
    assert "$1.20, $0.050 a lesson: 310 model calls read 1,000,000 tokens and wrote 500,000" in words
    assert "at $0.40 and $1.60 per million" in words
    assert "clean: 240 reflections = 240 in the playbook + 0 waiting + 0 dead letters; 0 lost" in words
    assert words.index("combee up --simulated") < words.index("combee learn RUNS.jsonl")
    lines = shown.splitlines()
    assert max(len(line.rstrip()) for line in lines) <= columns
    assert len(lines) <= HALF_A_PAGE
    assert "…" not in shown


def test_success_is_drawn_by_version_from_the_baseline_on() -> None:
    out = io.StringIO()
    Console(file=out, width=80, color_system=None).print(live_view(RESULT.curve, RESULT.added, "on the way"))
    _, baseline, first, second, status = (line.rstrip() for line in out.getvalue().splitlines())
    assert baseline.split() == ["without", "a", "playbook", "0%", "80", "runs"]
    assert first.split() == ["version", "1", "█" * 9, "33%", "36", "runs", "+14", "lessons"]
    assert second.split() == ["version", "2", "█" * 24, "94%", "32", "runs", "+10", "lessons"]
    assert status == "on the way"


def test_many_versions_keep_the_chart_short_with_the_newest_in_it() -> None:
    curve = curve_of(statistics((0, 80), *((20, 20) for _ in range(40))))
    out = io.StringIO()
    Console(file=out, width=80, color_system=None).print(chart(curve, {}, "ascii"))
    lines = out.getvalue().splitlines()
    assert len(lines) == 9
    assert lines[-1].startswith("version 40")
    assert "█" not in out.getvalue()


def test_without_a_terminal_each_row_is_a_line_once_it_is_final() -> None:
    assert plain_rows(RESULT.curve, RESULT.added, is_over=False) == [
        "without a playbook: success 0 % (0 to 5) of 80 runs"
    ]
    last = plain_rows(RESULT.curve, RESULT.added, is_over=True)[-1]
    assert last == "version 2: success 94 % (80 to 98) of 32 runs, +10 lessons"
    assert "█" not in printed(80, is_terminal=False)


def test_lessons_are_of_three_kinds_and_none_is_no_error() -> None:
    assert three(PLAYBOOK) == ["str-00001", "str-00009", "str-00017"]
    assert three(empty("demo/desk")) == []
    nothing = replace(RESULT, lessons=(), learned=Report(playbook=empty("demo/desk")))
    assert "a lesson" not in printed(80, is_terminal=True, result=nothing)
