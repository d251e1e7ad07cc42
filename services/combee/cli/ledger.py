"""``combee ledger``: check every promise against the topics."""

import asyncio
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from combee.adapters.clock import SystemClock
from combee.adapters.ports import ConfigurationError
from combee.assembly.local.stack_file import data_dir, of_brokers
from combee.cli.shared.console import FAILED, output, print_json, reading, remark
from combee.cli.shared.log import open_log
from combee.cli.shared.options import AsJson, Servers
from combee.cli.shared.settings import deployed_settings
from combee.core.log.ledger import Checkpoint, CheckpointError, LedgerReport, sealed, unsealed
from combee.core.text.forms import printable
from combee.log.inspection.audit import account
from combee.log.reports.ledger import decision_texts, reading_texts
from combee.process.settings.loading import Settings
from combee.process.trusted_files import read_trusted

FATES = ("applied", "pending", "dead_lettered", "lost")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee ledger --json")(ledger)


Full = Annotated[
    bool,
    typer.Option(
        "--full",
        help="Read everything instead of continuing from the checkpoint.",
    ),
]
CheckpointFile = Annotated[
    Path | None,
    typer.Option("--checkpoint", help="Where the checkpoint is kept; by default in the data directory."),
]


def ledger(
    *,
    full: Full = False,
    checkpoint: CheckpointFile = None,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Account for every reflection and retained trace.

    Exit 1 if one is lost or counted twice, or a rule fails.
    """
    settings = deployed_settings(bootstrap_servers=bootstrap_servers)
    with _without_gc():
        report = asyncio.run(_account(settings, checkpoint or _default_file(settings), full=full))
    if as_json:
        print_json(report.model_dump(mode="json"))
    else:
        _print(report)
    if not report.good:
        raise typer.Exit(FAILED)


@contextmanager
def _without_gc() -> Iterator[None]:
    """Disable garbage collection: it would scan all records again and again, and they have no reference cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


async def _account(settings: Settings, file: Path | None, *, full: bool) -> LedgerReport:
    before = None if full or file is None else _read(file)
    async with open_log(settings) as (log, _):
        with reading() as progress:
            read = await account(log, before, now_ms=SystemClock().now_ms(), on_progress=progress)
    if read.remark:
        remark(f"read from the beginning, because the checkpoint cannot be continued: {read.remark}")
    if file is not None and read.checkpoint is not None:
        _write(file, read.checkpoint)
    return read.report


def _default_file(settings: Settings) -> Path | None:
    """Return the checkpoint's path; None without a data directory, as in some containers."""
    try:
        return data_dir(settings) / f"ledger-{of_brokers(settings)}.json"
    except ModuleNotFoundError:
        return None


def _read(file: Path) -> Checkpoint | None:
    """Return a file's checkpoint, None if it is missing or unusable."""
    try:
        return unsealed(read_trusted(file))
    except FileNotFoundError:
        return None
    except (CheckpointError, ConfigurationError, OSError, UnicodeDecodeError) as error:
        remark(f"read from the beginning, because {file} is unusable: {error}")
        return None


def _write(file: Path, checkpoint: Checkpoint) -> None:
    partial = file.with_name(f"{file.name}.{os.getpid()}.partial")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial.write_text(sealed(checkpoint), "utf-8")
        partial.replace(file)
    except OSError as error:
        remark(f"the checkpoint was not saved, so the next run reads from the beginning: {error}")


def _print(report: LedgerReport) -> None:
    console = output()
    table = Table("reflections", *(fate.replace("_", "-") for fate in FATES), "double", box=None)
    table.add_row(*(str(getattr(report, name)) for name in ("reflections", *FATES, "double")))
    console.print(table)
    _print_traces(console, report)
    for text in decision_texts(report):
        console.print(printable(text), markup=False, soft_wrap=True)
    console.print(report.model_calls.text)
    for violation in report.violations:
        console.print(f"violation: {printable(violation)}", markup=False, style="red", soft_wrap=True)
    for conflict in report.conflicts:
        console.print(printable(conflict), markup=False, style="yellow", soft_wrap=True)
    if report.conflicts:
        console.print("conflicts: nothing was learned from these; send each under an id of its own")
    verdict = "[green]every promise was kept[/]" if report.good else "[red]VIOLATED[/]"
    console.print(verdict)
    for text in reading_texts(report):
        console.print(text, markup=False, soft_wrap=True)


def _print_traces(console: Console, report: LedgerReport) -> None:
    names = ("reflected", "pending", "dead_lettered", "duplicates", "lost")
    table = Table("traces", *(name.replace("_", "-") for name in names), box=None)
    table.add_row(*(str(getattr(report.traces, name)) for name in ("acknowledged", *names)))
    console.print(table)
