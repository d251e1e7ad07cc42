"""Rows of results: a median with its spread, and the bar it has to meet."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of the runs of one benchmark; a bar is the most it may be, or with ``at_least`` the least."""

    name: str
    value: float
    unit: str
    bar: float | None
    at_least: bool
    min: float
    max: float
    runs: int

    @property
    def met(self) -> bool | None:
        """Whether the median meets the bar; None without one."""
        if self.bar is None:
            return None
        return self.value >= self.bar if self.at_least else self.value <= self.bar


def row(
    name: str, values: Sequence[float], unit: str, bar: float | None = None, *, at_least: bool = False
) -> Row:
    """Return the median of ``values`` with their spread."""
    return Row(
        name=name,
        value=round(median(values), 4),
        unit=unit,
        bar=bar,
        at_least=at_least,
        min=round(min(values), 4),
        max=round(max(values), 4),
        runs=len(values),
    )
