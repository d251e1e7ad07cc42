"""Condensing a long run to a budget: failures and the steps before them stay, and the run's beginning and end."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from combee.core.text.shortening import ROOM, cut, size

SHARE = 4
"""Divisor of the budget that limits one step: one huge output must not crowd out all others."""
LINE_BYTES = 160
"""Maximum bytes shown, on one line, of a step that is not kept."""
GAP_BYTES = 48
"""Maximum bytes of the note about omitted steps, with the space around it."""
FAILURE = re.compile(
    r"Traceback \(most recent call last\)|\b(?:[A-Z]\w*)?(?:Error|Exception)\b(?=[:(\s]|$)|\berror:|\bFAILED\b"
    r"|\b(?:fatal|panic|Segmentation fault|command not found|No such file or directory|Permission denied)\b"
    r"|\bexit(?:ed with)? (?:code|status):? [1-9]|\breturned non-zero exit status\b"
)
"""Matches typical error messages of programs."""


@dataclass(frozen=True)
class Step:
    """One step of a run, by the agent, a tool or the user."""

    who: str
    text: str
    has_failed: bool = False
    """Whether the format marks a failure; an error message in the text also counts."""

    @cached_property
    def failure(self) -> int | None:
        """Place of the last error message; errors mentioned by people and agents are no failure."""
        is_said = self.who in ("user", "system", "assistant")
        starts = [] if is_said else [match.start() for match in FAILURE.finditer(self.text)]
        return starts[-1] if starts else 0 if self.has_failed else None

    @property
    def line(self) -> str:
        """The beginning of the step on one line."""
        return f"{self.who}: {cut_end(' '.join(self.text.split()), LINE_BYTES)}"


def trajectory_text(steps: Sequence[Step]) -> str:
    """Return a whole run as text."""
    return "\n\n".join(f"{step.who}: {step.text}" for step in steps)


def condensed(steps: Sequence[Step], most_bytes: int) -> str:
    """Return a run as text of at most ``most_bytes`` (UTF-8), with notes where steps are omitted.

    The last step, failures with the step before each (the latest first), and the first step are kept first; then
    steps from the end backwards. Other steps get one line while there is room; the rest are counted.
    """
    whole = trajectory_text(steps)
    if size(whole) <= most_bytes:
        return whole
    share = max(ROOM, most_bytes // SHARE)
    shown: dict[int, str] = {}
    room = most_bytes - ROOM
    for lines in (False, True):
        for at in _by_weight(steps):
            if at in shown:
                continue
            text = steps[at].line if lines else excerpt(steps[at], share)
            needed = size(text) + GAP_BYTES
            if needed <= room:
                shown[at] = text
                room -= needed
    return cut("\n\n".join(_with_gaps(shown, len(steps))), most_bytes)


def _by_weight(steps: Sequence[Step]) -> Iterator[int]:
    """Yield the steps' places, the most informative first; each once."""
    last = len(steps) - 1
    failures = [at for at in range(last, -1, -1) if steps[at].failure is not None]
    order = [last, *(place for at in failures for place in (at, at - 1)), 0, *range(last, -1, -1)]
    yield from dict.fromkeys(at for at in order if at >= 0)


def _with_gaps(shown: dict[int, str], count: int) -> Iterator[str]:
    expected = 0
    for at in (*sorted(shown), count):
        if at > expected:
            yield f"[… {at - expected} steps left out …]"
        if at < count:
            yield shown[at]
        expected = at + 1


def excerpt(step: Step, most_bytes: int) -> str:
    """Return a step of at most ``most_bytes``: its beginning, its failure, and its end."""
    text = f"{step.who}: {step.text}"
    if size(text) <= most_bytes:
        return text
    if step.failure is None:
        return cut(text, most_bytes)
    third = (most_bytes - 2 * ROOM) // 3
    # Sizes are counted in bytes; a character broken at an edge is left out.
    raw = text.encode(errors="replace")
    at = size(text[: len(step.who) + 2 + step.failure])
    begin = at - third // 4
    end = begin + third
    if third <= 0 or begin <= third or end >= len(raw) - third:
        return cut(text, most_bytes)
    parts = (raw[:third], raw[begin:end], raw[len(raw) - third :])
    gaps = (begin - third, len(raw) - third - end)
    first, failing, tail = (part.decode(errors="ignore") for part in parts)
    return f"{first}\n[… {gaps[0]} bytes cut …]\n{failing}\n[… {gaps[1]} bytes cut …]\n{tail}"


def cut_end(text: str, most_bytes: int) -> str:
    """Return a text's beginning, of at most ``most_bytes``."""
    raw = text.encode(errors="replace")
    return text if len(raw) <= most_bytes else raw[: most_bytes - 4].decode(errors="ignore") + " …"
