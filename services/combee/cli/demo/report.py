"""Output of the demo: a line per batch, and at the end the playbook, its history and the ledger."""

from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from combee.core.formats.files import natural_form, write_playbook
from combee.core.log.ledger import LedgerReport
from combee.log.inspection.learned import Report
from combee_schemas.batch import Batch
from combee_schemas.playbook import Playbook
from combee_sim.fleet import Accuracy


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """Results of the run."""

    learned: Report
    versions: tuple[Playbook, ...]
    before: Accuracy
    after: Accuracy
    seconds: float


def _added(version: Playbook) -> int:
    return sum(change.kind == "add" for change in version.changes)


def _widths(version: Playbook) -> tuple[int, ...]:
    return version.batch.plan.widths if version.batch else (0,)


def _took_s(version: Playbook) -> float:
    return (version.created_at_ms - version.batch.plan.closed_at_ms) / 1000 if version.batch else 0.0


def batch_line(version: Playbook, batch: Batch | None) -> str:
    """Return a line about one closed batch."""
    seconds, widths = _took_s(version), _widths(version)
    why = f" ({batch.plan.reason})" if batch else ""
    return (
        f"batch {version.batch_sequence:>2}: n={version.reflections:<3} k={widths[0]:<2}"
        f" levels={len(widths)} model calls={version.usage.calls:<3} {seconds:.2f} s"
        f" entries added={_added(version)}{why}"
    )


def report(result: DemoResult, ledger: LedgerReport, console: Console) -> None:
    """Print playbook, history, accuracy, cost and the ledger's verdict."""
    playbook = result.learned.playbook
    console.rule(f"playbook {playbook.name}, version {playbook.version}")
    console.print(escape(write_playbook(playbook, natural_form(playbook))), highlight=False, soft_wrap=True)
    console.print(_history(result))
    console.rule("result")
    usage = result.learned.usage
    console.print(f"before learning: {result.before}")
    console.print(f"after learning:  {result.after}")
    console.print(
        f"learning took {result.seconds:.1f} s: {usage.calls} model calls (reflecting and aggregating),"
        f" {usage.tokens_in} tokens in, {usage.tokens_out} out; all of it [b]simulated[/b]"
    )
    verdict = "[green]clean[/]" if ledger.good else "[red]VIOLATED[/]"
    console.print(
        f"ledger: {verdict} – {ledger.reflections} reflections = {ledger.applied} applied + {ledger.pending} pending"
        f" + {ledger.dead_lettered} dead-lettered; {ledger.lost} lost, {ledger.double} double"
    )
    for violation in ledger.violations:
        console.print(f"  {escape(violation)}")


def _history(result: DemoResult) -> Table:
    table = Table("version", "batch", "reflections", "k", "model calls", "seconds", "added", "entries so far")
    entries = 0
    for version in result.versions:
        entries += _added(version) - sum(c.kind in {"remove", "evict", "merge"} for c in version.changes)
        table.add_row(
            str(version.version),
            str(version.batch_sequence),
            str(version.reflections),
            str(_widths(version)[0]),
            str(version.usage.calls),
            f"{_took_s(version):.2f}",
            str(_added(version)),
            str(entries),
        )
    return table
