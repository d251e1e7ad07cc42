"""Cells: one arm under one set of parameters with one seed, and what was measured there."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean

Value = str | int | float
Numbers = Mapping[str, float]
"""What one cell measured: name → number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One thing to measure; the smallest piece of work that is done, written and skipped as a whole."""

    arm: str
    seed: int
    parameters: tuple[tuple[str, Value], ...] = ()

    @classmethod
    def of(cls, arm: str, seed: int, **parameters: Value) -> "Cell":
        """Return a cell; the order of parameters does not matter."""
        return cls(arm=arm, seed=seed, parameters=tuple(sorted(parameters.items())))

    def text(self, name: str) -> str:
        """Return a parameter."""
        return str(dict(self.parameters)[name])

    def number(self, name: str) -> int:
        """Return a parameter that is a whole number."""
        return int(dict(self.parameters)[name])

    def as_json(self) -> dict[str, object]:
        """Return what tells this cell from others of its experiment."""
        return {"arm": self.arm, "parameters": dict(self.parameters), "seed": self.seed}

    def __str__(self) -> str:
        told = ", ".join(f"{name} {value}" for name, value in self.parameters)
        return f"{self.arm} ({told}), seed {self.seed}" if told else f"{self.arm}, seed {self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One number over the seeds."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Their mean."""
        return fmean(self.values)

    @property
    def low(self) -> float:
        """The smallest."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The largest."""
        return max(self.values)

    def told(self, digits: int = 1) -> str:
        """Return ``mean (smallest–largest)``; the mean alone where all agree."""
        mean, low, high = (f"{one:,.{digits}f}" for one in (self.mean, self.low, self.high))
        return mean if low == high else f"{mean} ({low}–{high})"


@dataclass(frozen=True, slots=True)
class Measured:
    """The cells of one experiment that have been measured."""

    cells: Mapping[Cell, Numbers] = field(default_factory=dict)

    def where(self, arm: str | None = None, **parameters: Value) -> "Measured":
        """Return those of an arm (None: of all) with these parameters."""
        wanted = set(parameters.items())
        found = (
            (cell, numbers)
            for cell, numbers in self.cells.items()
            if arm in (None, cell.arm) and wanted <= set(cell.parameters)
        )
        return Measured(dict(found))

    def spread(self, name: str) -> Spread:
        """Return one number over all these cells: over the seeds, when arm and parameters are chosen."""
        return Spread(values=tuple(numbers[name] for numbers in self.cells.values()))

    def by_seed(self, name: str) -> dict[int, float]:
        """Return one number by seed."""
        return {cell.seed: numbers[name] for cell, numbers in self.cells.items()}

    def arms(self) -> tuple[str, ...]:
        """Return the arms, in the order they were planned."""
        return tuple(dict.fromkeys(cell.arm for cell in self.cells))

    def ways(self) -> Iterator[tuple[str, int, "Measured"]]:
        """Yield each arm at each of its batch sizes, in the order they were planned."""
        for arm, size in dict.fromkeys((cell.arm, cell.number("batch_size")) for cell in self.cells):
            yield arm, size, self.where(arm, batch_size=size)

    def values(self, parameter: str) -> tuple[Value, ...]:
        """Return the values of one parameter, in the order they were planned."""
        return tuple(
            dict.fromkeys(value for cell in self.cells for n, value in cell.parameters if n == parameter)
        )

    def __iter__(self) -> Iterator[tuple[Cell, Numbers]]:
        return iter(self.cells.items())

    def __len__(self) -> int:
        return len(self.cells)


def key(identity: Mapping[str, object]) -> str:
    """Return what a cell's line is found by: the same identity has the same key."""
    return json.dumps(identity, sort_keys=True, ensure_ascii=False)


def in_order(cells: Iterable[Cell], measured: Mapping[Cell, Numbers]) -> Measured:
    """Return what is measured, in the order of the plan."""
    return Measured({cell: measured[cell] for cell in cells if cell in measured})
