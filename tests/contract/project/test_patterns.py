"""No text makes a regular expression of the project take more than linear time."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from combee.core.log.erasure.selector import _name
from combee.core.text.redact import KEY
from combee_schemas.playbook import LABEL_PATTERN
from combee_sim.family import wordings
from support.patterns import Use, units, uses

ROOT = Path(__file__).parents[3]
PACKAGES = (
    ROOT / "schemas" / "combee_schemas",
    ROOT / "services" / "combee",
    ROOT / "services" / "combee_sim",
)
EXAMPLES: Mapping[str, tuple[str, Sequence[str]]] = {
    r"combee.adapters.openai.wire: f'\\b{name}\\b'": ("search", [r"\bmax_tokens\b"]),
    r"combee.core.log.erasure.selector: f'(?<![^\\W_])(?={pattern}(?![^\\W_]))'": (
        "finditer",
        [_name(subject)[-1].pattern for subject in ("jane roe", "jane.roe@example.com", "a a a")],
    ),
    r"combee.core.text.prompt: f'<(\\s*/\\s*{name})'": ("sub", [r"<(\s*/\s*name)"]),
    # An operator's own, searched in a process that has a deadline.
    "combee.core.evaluation.scoring: question.target": ("search", []),
    # Compiled at import, and found there.
    "combee.core.text.similarity.wording: british": ("sub", []),
    "combee_sim.family.wordings: ''.join(pieces)": (
        "fullmatch",
        [
            wordings._pattern(way).pattern
            for kind in wordings.KINDS
            for phrases in kind.phrases.values()
            for phrase in phrases
            for way in phrase.ways
        ],
    ),
    "combee_sim.family.wordings: re.escape(first) + ''.join(fields) + end": (
        "fullmatch",
        [
            template.pattern.pattern
            for kind in (*wordings.KINDS, wordings.FREE)
            for template in kind.templates
        ],
    ),
}
"""Patterns that are put together where they are used: how, and some of them."""
BY_HAND = (
    "eyJ-",
    " ",
    "\n",
    "a",
    "a ",
    "a.",
    "a-",
    "0",
    "0,",
    "1 ",
    "<",
    "**a",
    " **a",
    "1 2",
    "://a:",
    "password=",
    "key ",
    "- `",
    "\u2500 ",
)
SIZES = (20, 256, 4_096)
"""Characters; the first is for what grows with the third power, which the others would wait for."""
AT_ONCE_S = 0.001
"""What a linear search of the largest text takes at most; only a slower one is measured closely."""
GROWTH = 8.0
"""For four times the text a linear search takes 4 times as long, a quadratic one 16 times."""
CUBIC, LINEAR, LEAST_S = 64, 5.0, 40e-6
"""For four times the text: growth with the third power, linear growth with some noise; and a time above the noise."""
BEYOND_NOISE = 100.0
"""No disturbance makes one search take so many times longer than another."""
REPEATS = 5


Text = Callable[[int], str]
"""A text by its size in characters."""


def texts(use: Use) -> Iterator[Text]:
    for prefix, pump in [*units(use.pattern), *(("", unit) for unit in BY_HAND)]:
        for before, after in (("", ""), ("\0", "\0"), ("x", "x")):

            def text(size: int, begin: str = before + prefix, pump: str = pump, end: str = after) -> str:
                return (begin + pump * (1 + size // len(pump)))[:size] + end

            yield text


def seconds(use: Use, text: str, repeats: int = 1) -> float:
    """Return the processor time of a search, the shortest of some."""
    shortest = float("inf")
    for _ in range(repeats):
        began = time.thread_time()
        use.run(text)
        shortest = min(shortest, time.thread_time() - began)
    return shortest


def growth(use: Use, text: Text, size: int, took_s: float) -> float:
    """Return how many times longer a text takes than one of a quarter of its size; it took ``took_s`` once."""
    once = took_s / max(seconds(use, text(size // 4)), 1e-6)
    if not GROWTH < once < BEYOND_NOISE:
        return once
    return seconds(use, text(size), REPEATS) / max(seconds(use, text(size // 4), REPEATS), 1e-6)


def is_surely_linear(use: Use, text: Text, size: int) -> bool:
    """Return whether shorter texts of one kind show that one of ``size`` takes linear time, or none to speak of."""
    quarter = seconds(use, text(size // 4))
    if quarter * CUBIC < AT_ONCE_S:
        return True
    return LEAST_S < quarter < LINEAR * seconds(use, text(size // 16), 2)


def slow_text(use: Use) -> str | None:
    """Return a text for which a pattern takes more than linear time; the smallest are tried first."""
    for size in SIZES:
        for text in texts(use):
            if size == SIZES[-1] and is_surely_linear(use, text, size):
                continue
            took_s = seconds(use, text(size))
            if took_s > AT_ONCE_S and growth(use, text, size, took_s) > GROWTH:
                return text(size)
    return None


@cache
def patterns() -> list[Use]:
    return uses(PACKAGES, EXAMPLES)


def test_time_grows_linearly_with_the_text_for_every_pattern() -> None:
    slow = {
        f"{use.where}: {use.pattern.pattern}": text[:60] for use in patterns() if (text := slow_text(use))
    }
    assert not slow


def test_a_pattern_that_takes_quadratic_or_exponential_time_is_seen() -> None:
    assert slow_text(Use("", re.compile(r"\beyJ[\w-]{8,}\.[\w-]+"), anchored=False))
    assert slow_text(Use("", re.compile(r"(?:a+)+b"), anchored=True))


def test_every_kind_of_call_is_seen() -> None:
    seen = {use.pattern.pattern for use in patterns()}
    assert {KEY.pattern, LABEL_PATTERN, r"cont-(\d+)", r"\r\n|\r|\n", r"<(\s*/\s*name)"} <= seen
