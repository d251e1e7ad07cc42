"""``combee ledger``: whether every promise was kept, from the topics alone."""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.table import Table

from combee.cli.playbook.view import calls_text
from combee.cli.shared.console import FAILED, clean, output, print_json, reading
from combee.cli.shared.log import open_log
from combee.cli.shared.options import AsJson, Servers
from combee.core.ledger import LedgerReport
from combee.inspection.audit import audit
from combee.settings.loading import Settings, load_settings

FATES = ("applied", "pending", "dead_lettered", "lost")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee ledger --json")(ledger)


def ledger(*, bootstrap_servers: Servers = None, as_json: AsJson = False) -> None:
    """Account for all reflections and retained traces; exit 1 if one is lost, counts twice or a rule is broken."""
    with _uncollected():
        report = asyncio.run(_audit(load_settings(bootstrap_servers=bootstrap_servers)))
    if as_json:
        print_json(report.as_json())
    else:
        _print(report)
    if not report.good:
        raise typer.Exit(FAILED)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Look for no garbage meanwhile: what is read has no cycles, and each search goes through all that is kept."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


async def _audit(settings: Settings) -> LedgerReport:
    async with open_log(settings) as (log, _):
        with reading() as progress:
            return await audit(log, progress)


def _print(report: LedgerReport) -> None:
    console = output()
    table = Table("reflections", *(fate.replace("_", "-") for fate in FATES), "double", box=None)
    table.add_row(*(str(getattr(report, name)) for name in ("reflections", *FATES, "double")))
    console.print(table)
    _print_traces(console, report)
    if report.dropped:
        console.print(
            f"{report.dropped} of the dead-lettered were dropped by an operator ('combee dlq list --all')"
        )
    console.print(calls_text(report.usage, report.planned_calls))
    for violation in report.violations:
        console.print(f"violation: {clean(violation)}", markup=False, style="red", soft_wrap=True)
    for conflict in report.conflicts:
        console.print(clean(conflict), markup=False, style="yellow", soft_wrap=True)
    if report.conflicts:
        console.print("conflicts: nothing was learned from these; send each under an id of its own")
    verdict = "[green]every promise was kept[/]" if report.good else "[red]VIOLATED[/]"
    console.print(verdict)
    console.print(f"horizon: {report.horizon.note}", markup=False, soft_wrap=True)


def _print_traces(console: Console, report: LedgerReport) -> None:
    names = ("acknowledged", "reflected", "pending", "dead_lettered", "duplicates", "lost")
    table = Table("traces", *(name.replace("_", "-") for name in names[1:]), box=None)
    table.add_row(*(str(getattr(report.traces, name)) for name in names))
    console.print(table)
