"""The stand-in as writer of whole texts (GEPA): the rules it keeps, one per line, by the aggregator's law."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from combee.sim.family.lessons import ShownEntry, key, subject
from combee.sim.law.law import LAW, Law
from combee.sim.roles.aggregator import keep
from combee.sim.roles.reading import NO_RULES, Reading


def write(reading: Reading, seed: int, law: Law = LAW) -> dict[str, Any]:
    """Return the current text with what is kept of the records' or versions' lessons, between fences.

    Lines of the current text are read like a playbook's entries and stay, unless a kept lesson contradicts them.
    """
    current = _current(reading)
    entries = tuple(ShownEntry(id="", content=line) for line in current)
    read, kept = keep(replace(reading, entries=entries), seed, law)
    said = {key(item.lesson): item.lesson for item in reversed(read.items)}
    lines = list(_merged(current, [said[lesson] for lesson in kept])) or [NO_RULES]
    told = f"Simulated: {len(kept)} of {len(read.distinct)} distinct lessons kept."
    return {"text": "\n".join([told, "```", *lines, "```"])}


def _current(reading: Reading) -> tuple[str, ...]:
    """Return the lines there are; a lone one in brackets is a remark that there is none."""
    lines = tuple(line for line in reading.current_text() if line.strip() not in {"", NO_RULES})
    is_remark = len(lines) == 1 and lines[0].startswith("(") and lines[0].endswith(")")
    return () if is_remark else lines


def _merged(current: Sequence[str], kept: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the next text: a lesson takes the place of the line that says otherwise."""
    about = {subject(lesson) or key(lesson): lesson for lesson in kept}
    for line in current:
        yield about.pop(subject(line) or key(line), line)
    yield from about.values()
