"""What the stand-in knows of questions that do not say it: the row of the data that stands behind each.

ACE's protocol hides a question's formula from agents and reflectors, and a simulated one cannot guess it. So whoever
starts the stand-in may give it the data; the product knows nothing of this, and no prompt holds it.
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
    """What agents are asked."""
    statement: str
    """All that the row says, formula and explanation included."""
    target: str


@dataclass(frozen=True)
class Knowledge:
    """Rows by their questions; of two rows with one question the first is known."""

    rows: tuple[Row, ...] = ()

    def __add__(self, other: "Knowledge") -> "Knowledge":
        return Knowledge(rows=self.rows + other.rows)

    def behind(self, question: str) -> Row | None:
        """Return the row behind a question; None if it is not known."""
        return self._by_question.get(_spelt(question))

    def statement(self, question: str) -> str:
        """Return all that is known of a question: its row's text, else the question itself."""
        row = self.behind(question)
        return row.statement if row else question

    @cached_property
    def _by_question(self) -> dict[str, Row]:
        return {_spelt(row.question): row for row in reversed(self.rows)}


def _spelt(question: str) -> str:
    return " ".join(question.split())


NOTHING_KNOWN = Knowledge()


def read_knowledge(path: Path) -> Knowledge:
    """Return what a file of ACE samples says; its other lines are passed over.

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
