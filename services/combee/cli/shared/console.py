"""Printing by verbs: results go to standard output, everything else to standard error.

Exit codes: 0 good, 1 failed or violated, 2 usage or settings, 3 some input was rejected.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from combee.core.text.forms import printable
from combee_schemas.errors import ConfigurationError

FAILED, USAGE, REJECTED = 1, ConfigurationError.exit_code, 3
WIDTH_OF_PIPES = 160
WIDEST = 1000
COLUMNS = (TextColumn("{task.description:>16}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())

UNSEEN = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters that JSON may hold as they are, in ids and texts of others."""


class CleanConsole(Console):
    """A console that removes terminal control sequences from plain text, also in the cells of tables."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return plain text as it is printed."""
        return super().render_str(printable(text), **options)


def output() -> Console:
    """Return the console for results people read."""
    width = None if sys.stdout.isatty() else WIDTH_OF_PIPES
    return CleanConsole(highlight=False, width=width)


def print_whole(table: Table) -> None:
    """Print a table without cutting figures off: a line longer than the terminal wraps."""
    console = output()
    widest = Measurement.get(console, console.options.update(max_width=WIDEST), table).maximum
    console.width = max(console.width, widest)
    console.print(table, crop=False)


def diagnostics() -> Console:
    """Return the console for progress and remarks."""
    return CleanConsole(stderr=True, highlight=False)


def remark(text: str) -> None:
    """Print a remark on standard error."""
    typer.echo(printable(text), err=True)


def print_json(value: object) -> None:
    """Print one JSON document in one line; it may hold reports."""
    text = json.dumps(value, ensure_ascii=False, default=_plain)
    typer.echo(UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def _plain(report: Any) -> object:
    # Any: 'combee --help' must not load pydantic.
    return report.model_dump(mode="json")


def shortened(text: str, most: int) -> str:
    """Return foreign text as one line of at most ``most`` characters, without terminal control sequences."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= most else line[: most - 1] + "…"


@contextmanager
def reading() -> Iterator[Callable[[str, int, int], None]]:
    """Show on standard error how far topics have been read; yields a function of topic, read and total."""
    console = diagnostics()
    with Progress(*COLUMNS, console=console, transient=True, disable=not console.is_terminal) as progress:
        bars = {"": progress.add_task("reading", total=None)}

        def show(topic: str, read: int, total: int) -> None:
            if topic not in bars:
                bars[topic] = progress.add_task(topic)
                progress.update(bars[""], visible=False)
            progress.update(bars[topic], completed=read, total=total)

        yield show


def confirmed(question: str) -> bool:
    """Ask on standard error; without a terminal the answer is no."""
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        return False


def failure(message: str, code: int) -> typer.Exit:
    """Print why the program ends, and return its exit."""
    typer.echo(f"combee: {printable(message)}", err=True)
    return typer.Exit(code)
