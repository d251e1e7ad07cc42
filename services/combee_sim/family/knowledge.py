"""The stand-in's knowledge of questions that do not contain their rule: the data row behind each.

ACE's protocol hides a question's formula from agents and reflectors, and a simulated model cannot guess it. So the
stand-in may be started with the data; the product does not know about this, and no prompt contains it.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from combee.core.formats.intake import LineError, Sample, read_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the data."""

    question: str
    """The question for agents."""
    statement: str
    """The complete text of the row, formula and explanation included."""
    target: str


@dataclass(frozen=True)
class Knowledge:
    """Rows by question; of two rows with one question the first counts."""

    rows: tuple[Row, ...] = ()

    def __add__(self, other: "Knowledge") -> "Knowledge":
        return Knowledge(rows=self.rows + other.rows)

    def behind(self, question: str) -> Row | None:
        """Return the row behind a question; None if unknown."""
        return self._by_question.get(_spelt(question))

    def statement(self, question: str) -> str:
        """Return the complete text of a question's row, otherwise the question itself."""
        row = self.behind(question)
        return row.statement if row else question

    @cached_property
    def _by_question(self) -> dict[str, Row]:
        return {_spelt(row.question): row for row in reversed(self.rows)}


def _spelt(question: str) -> str:
    return " ".join(question.split())


NOTHING_KNOWN = Knowledge()


def read_knowledge(path: Path) -> Knowledge:
    """Return the ACE samples in a file; its other lines are skipped.

    Raises
    ------
    ValueError
        If the file cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from error
    return Knowledge(rows=tuple(_rows(lines)))


def _rows(lines: Iterable[str]) -> Iterator[Row]:
    for line in lines:
        try:
            sample = read_line(line, "known")
        except (LineError, RecursionError, UnicodeEncodeError):
            continue
        if isinstance(sample, Sample):
            statement = json.loads(line).get("context") or sample.question
            yield Row(question=sample.question, statement=str(statement), target=sample.target)
