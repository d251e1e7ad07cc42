"""The context-overload law: which share of the distinct lessons in its prompt an aggregator keeps."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from combee_schemas.model import CHARS_PER_TOKEN
from combee_sim.family.lessons import key

Counting = Callable[[Sequence[str], Sequence[str], int], float]
"""Playbook entries, the data's lessons (repeats included), characters of text in the data → tokens."""

TEXT_STEP = 8
"""Factor of additional text per lesson at which the data are charged as longer."""


def in_steps(entries: Sequence[str], lessons: Sequence[str], text_chars: int) -> float:
    """Count the playbook's entries plus the data; this is the rule in force.

    The data are charged as their lessons times the number of characters in the data per character of lesson, rounded
    to a power of ``TEXT_STEP``.
    """
    data = _chars(lessons)
    if not data:
        return _tokens(_chars(entries))
    # Rounding keeps the charge equal for paraphrases, while several times as much text raises it.
    times = TEXT_STEP ** round(math.log(max(1.0, text_chars / data), TEXT_STEP))
    return _tokens(_chars(entries) + data * times)


def exact_text(entries: Sequence[str], lessons: Sequence[str], text_chars: int) -> float:
    """Count the playbook's entries and every character of the data's text: wording shifts it."""
    del lessons
    return _tokens(_chars(entries) + text_chars)


def without_playbook(entries: Sequence[str], lessons: Sequence[str], text_chars: int) -> float:
    """Count the data's text alone."""
    del entries, lessons
    return _tokens(text_chars)


def lessons_only(entries: Sequence[str], lessons: Sequence[str], text_chars: int) -> float:
    """Count entries and lessons alone, as if the text around a lesson cost nothing to read."""
    del text_chars
    return _tokens(_chars(entries) + _chars(lessons))


def _chars(texts: Sequence[str]) -> float:
    return sum(len(key(text)) for text in texts)


def _tokens(chars: float) -> float:
    return chars / CHARS_PER_TOKEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """f(T) = 1 / (1 + (T / half_tokens)^steepness): nothing read, nothing lost; beyond, a power law."""

    half_tokens: float
    steepness: float
    count: Counting = in_steps

    def keep_fraction(self, tokens: float) -> float:
        """Return the fraction of the distinct lessons kept after reading ``tokens``."""
        return 1.0 / (1.0 + math.pow(tokens / self.half_tokens, self.steepness))


LAW = Law(half_tokens=1_430.0, steepness=0.775)
"""Both constants are fitted by benchmarks/fit_overload.py to the number of entries per update of naive ACE in the
paper's figure, and to nothing else. Other counting rules fit it, too: docs/design/simulation.md names them and what
follows."""
