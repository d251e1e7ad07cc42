"""What an experiment reports, as values: tables, verdicts and panels; nothing is drawn or written here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from combee_experiments.running.cells import Measured, Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table; numbers are written as they are to be read."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    """One or a few sentences below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One criterion, decided with its number."""

    criterion: str
    met: bool
    told: str
    """The numbers it was decided by."""

    @property
    def word(self) -> str:
        """``met`` or ``missed``."""
        return "met" if self.met else "missed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line of a panel: a spread per place on the x axis."""

    name: str
    points: tuple[tuple[float, Spread], ...]
    style: Literal["line", "paper", "points"] = "line"
    """``paper`` is drawn dashed: figures that were not measured here."""


def series_of(name: str, measured: Measured, parameter: str, number: str, *, factor: float = 1) -> Series:
    """Return a line: one number over the values of a parameter, times a factor."""
    values = measured.values(parameter)
    points = ((float(value), measured.where(None, **{parameter: value}).spread(number)) for value in values)
    return Series(name=name, points=tuple((factor * value, spread) for value, spread in points))


def series_by(measured: Measured, parameter: str, number: str) -> tuple[Series, ...]:
    """Return a line per arm: one number over the values of a parameter."""
    return tuple(series_of(arm, measured.where(arm), parameter, number) for arm in measured.arms())


def points_by_arm(measured: Measured, x: str, y: str) -> tuple[Series, ...]:
    """Return a set of points per arm, one for each batch size: a number over the mean of another."""
    points: dict[str, list[tuple[float, Spread]]] = {}
    for arm, _, found in measured.ways():
        points.setdefault(arm, []).append((found.spread(x).mean, found.spread(y)))
    return tuple(Series(name=arm, points=tuple(of_arm), style="points") for arm, of_arm in points.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One set of axes of the plot."""

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What an experiment found."""

    tables: tuple[Table, ...]
    verdicts: tuple[Verdict, ...] = ()
    panels: tuple[Panel, ...] = ()
    remarks: tuple[str, ...] = ()
    """What a reader has to know in order not to misread the tables; one sentence each."""


def joined(parts: Iterable[Report]) -> Report:
    """Return the reports on several sets of data as one; a remark that all make is made once."""
    found = tuple(parts)
    return Report(
        tables=tuple(table for part in found for table in part.tables),
        verdicts=tuple(verdict for part in found for verdict in part.verdicts),
        panels=tuple(panel for part in found for panel in part.panels),
        remarks=tuple(dict.fromkeys(remark for part in found for remark in part.remarks)),
    )


def markdown(table: Table) -> str:
    """Return a table as Markdown."""
    lines = [f"### {table.title}", "", _row(table.columns), _row(["---"] * len(table.columns))]
    lines += map(_row, table.rows)
    return "\n".join([*lines, *(["", table.note] if table.note else [])])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def told(verdict: Verdict) -> str:
    """Return a verdict in one line."""
    return f"**{verdict.word}**: {verdict.criterion}: {verdict.told}"
