"""Output of the demo: success by version while it runs, and half a page at the end."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from combee.cli.shared.console import shortened
from combee.core.evaluation.outcomes.report import Curve, FiguresReport, Point, estimate_text, versions_text
from combee.core.log.ledger import LedgerReport
from combee.core.playbook.budget import shown_tokens
from combee.core.playbook.spend import SpendPolicy
from combee.log.inspection.learned import Report
from combee.log.inspection.lineage import Lineage
from combee.log.reports.ledger import account_text
from combee_schemas.playbook import Playbook
from combee_sim.family.desk import RULES, rule_in
from combee_sim.fleet import Accuracy

PRICE = SpendPolicy(price_in=0.40, price_out=1.60)
"""Price per million tokens, of a small hosted model: the stand-in itself costs nothing."""
KINDS = ("refunds", "bookings", "deliveries")
"""The rules of the desk come in three thirds."""
NEXT_STEPS = {
    "combee up --simulated": "keep it running, with a dashboard",
    "combee learn RUNS.jsonl": "learn from the runs of your own agents",
}
BAR, ROWS, QUOTED = 26, 8, 120


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """Results of the run."""

    learned: Report
    curve: Curve
    added: Mapping[int, int]
    """Number of lessons that each version added."""
    lessons: tuple[Lineage, ...]
    before: Accuracy
    after: Accuracy
    seconds: float


def added_by(versions: Iterable[Playbook]) -> dict[int, int]:
    """Return the number of lessons that each version added."""
    return {version.version: sum(change.kind == "add" for change in version.changes) for version in versions}


# ---- while it runs


def live_view(curve: Curve, added: Mapping[int, int], status: str) -> RenderableType:
    """Return success by version so far, and a line about the progress."""
    return Group(
        Text("Success of the simulated agents, by version of the playbook:"), chart(curve, added), status
    )


def chart(curve: Curve, added: Mapping[int, int], encoding: str = "utf-8") -> Table:
    """Return success by version as bars."""
    shown = Table.grid(padding=(0, 2, 0, 0))
    for column in ("left", "left", "right", "right", "left"):
        shown.add_column(justify=column, no_wrap=True)
    for name, figures, lessons in _rows(curve, added):
        share = figures.success.mean if figures.success else 0.0
        full = ("█" if encoding.startswith("utf") else "#") * round(share * BAR)
        shown.add_row(
            name,
            Text(full.ljust(BAR), style="green"),
            f"{share:.0%}",
            f"{figures.runs} runs",
            _lessons(lessons),
        )
    return shown


def plain_rows(curve: Curve, added: Mapping[int, int], *, is_over: bool) -> list[str]:
    """Return the rows of the chart as lines, without those that may still change."""
    rows = [
        f"{name}: success {estimate_text(figures.success, as_percent=True)} of {figures.runs} runs"
        f"{f', {_lessons(lessons)}' if lessons else ''}"
        for name, figures, lessons in _rows(curve, added, most=None)
    ]
    return rows if is_over else rows[:-2]


def _rows(
    curve: Curve, added: Mapping[int, int], most: int | None = ROWS
) -> Iterator[tuple[str, FiguresReport, int]]:
    """Yield name, figures and new lessons of each row: the first and the last ones, if there are too many."""
    if curve.baseline:
        yield "without a playbook", curve.baseline, 0
    points = [*curve.points]
    if most is not None and len(points) > most:
        points = [*points[: most - 1], points[-1]]
    for point in points:
        yield versions_text(point), point, _added(point, added)


def _added(point: Point, added: Mapping[int, int]) -> int:
    return sum(count for version, count in added.items() if point.first <= version <= point.version)


def _lessons(count: int) -> str:
    return f"+{count} lesson{'' if count == 1 else 's'}" if count else ""


# ---- the half page


def report(result: DemoResult, ledger: LedgerReport, console: Console) -> None:
    """Print before and after, three lessons with the runs that taught them, cost, ledger, and how to go on."""
    if console.is_terminal:
        console.print(chart(result.curve, result.added, console.encoding))
    before, after, count = result.before, result.after, len(result.learned.playbook.entries)
    console.print(
        f"\nBefore, the agents knew [b]{before.right} of {before.asked}[/] house rules; after {result.seconds:.0f} s"
        f" they know [b]{after.right} of {after.asked}[/] (simulated; one new ticket for each rule)."
    )
    if result.lessons:
        console.print(f"{len(result.lessons)} of the {count} lessons, and the run that taught each:\n")
    for lesson in result.lessons:
        console.print(Padding(_lesson(lesson), (0, 0, 1, 2)))
    accounted = "\n".join([account_text(ledger), *ledger.violations])
    console.print(_facts({"Cost": _cost(result), "Ledger": accounted}, style="bold"))
    console.print("\nGo on:")
    activate = Path(sys.prefix, "bin", "activate")
    first = (
        {f". {activate}": "so that your shell finds combee"}
        if not which("combee") and activate.is_file()
        else {}
    )
    console.print(_facts({**first, **NEXT_STEPS}, style="bold"))


def _facts(facts: Mapping[str, str], style: str = "") -> Table:
    shown = Table.grid(padding=(0, 2, 0, 0))
    shown.add_column(no_wrap=True, style=style)
    shown.add_column(overflow="fold")
    for name, text in facts.items():
        shown.add_row(name, Text(text))
    return shown


def _lesson(lesson: Lineage) -> RenderableType:
    """Return a lesson and the run that taught it."""
    source = next((source for source in lesson.sources if source.trace and not source.trace.success), None)
    trace = source.trace if source else None
    facts = {}
    if trace is not None:
        more = lesson.entry.evidence_count - 1
        also = f", and {more} more" if more else ""
        facts = {
            "ticket": shortened(trace.task.partition(": ")[2], QUOTED),
            "answer": f'"{trace.answer}", but "{trace.target}" is right (run {trace.trace_id[:10]}{also})',
        }
    return Group(Text(lesson.entry.content, style="bold"), _facts(facts, style="dim"))


def three(playbook: Playbook) -> list[str]:
    """Return the ids of three lessons, each of another kind: the first ones that were learned."""
    chosen: dict[str, str] = {}
    for entry in sorted(playbook.entries, key=lambda entry: (entry.created_version, entry.id)):
        said = rule_in(entry.content)
        if said is not None:
            chosen.setdefault(KINDS[RULES.index(said[0]) * len(KINDS) // len(RULES)], entry.id)
    return [chosen[kind] for kind in KINDS if kind in chosen]


def _cost(result: DemoResult) -> str:
    usage, lessons = result.learned.usage, len(result.learned.playbook.entries)
    money = PRICE.cost(usage)
    each = f", ${money / lessons:.3f} a lesson" if lessons else ""
    return (
        f"${money:.2f}{each}: {usage.calls} model calls read {usage.tokens_in:,} tokens and wrote"
        f" {usage.tokens_out:,}, at ${PRICE.price_in:.2f} and ${PRICE.price_out:.2f} per million. An agent's prompt"
        f" grew by {sum(shown_tokens(result.learned.playbook).values()):,} tokens."
    )
