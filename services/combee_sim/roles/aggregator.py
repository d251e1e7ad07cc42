"""The stand-in as aggregator, summariser and writer: it keeps the share of distinct lessons that the law allows."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from combee_schemas.digests import digest
from combee_sim.chance import draw
from combee_sim.family.lessons import Item, ShownEntry, entries_in, key, subject
from combee_sim.law.law import LAW, Law
from combee_sim.modes import NO_MODES, Modes
from combee_sim.roles.curator import Curator, shown_in
from combee_sim.roles.failing import Failing
from combee_sim.roles.reading import NO_RULES, Reading

LATER = "then the later one"
"""Words of instructions by which the order of items decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load of one call: its items, their distinct lessons, and the tokens that the law counts."""

    items: tuple[Item, ...]
    distinct: tuple[str, ...]
    tokens: float
    failing: Failing = field(default_factory=Failing)


def load(reading: Reading, law: Law = LAW) -> Load:
    """Return the load of a call, with tokens as counted by ``law``."""
    return _load(reading, reading.items(), law, Failing())


def _load(reading: Reading, items: tuple[Item, ...], law: Law, failing: Failing) -> Load:
    text_chars = sum(map(_text_chars, reading.objects))
    entries = [entry.content for entry in reading.entries]
    return Load(
        items=items,
        distinct=_without_conflicts(_by_lesson(items), failing, in_order=reading.says(LATER)),
        tokens=law.count(entries, [item.lesson for item in items], text_chars),
        failing=failing,
    )


def aggregate(reading: Reading, seed: int, law: Law = LAW, modes: Modes = NO_MODES) -> dict[str, Any]:
    """Return operations for the lessons kept of a call's reflections or proposals, or on clusters of entries."""
    asked = [value for value in reading.objects if "cluster" in value]
    if asked:
        return _consolidate(asked)
    read, kept = keep(reading, seed, law, modes)
    by_lesson = _by_lesson(read.items)
    curator = Curator(shown_in(reading), read.failing)
    for lesson in kept:
        for items in read.failing.statements(by_lesson[lesson]):
            curator.keep(items)
    curator.make_up(read.items)
    distinct = set(read.distinct)
    rejected = [item.n for item in read.items if key(item.lesson) not in distinct]
    unread = by_lesson.keys() - set(kept)
    curator.remove(reading.accused(), {item.n for lesson in unread for item in by_lesson[lesson]})
    curator.overlook({lesson: by_lesson[lesson] for lesson in read.distinct if lesson in unread})
    return {
        "reasoning": f"Simulated: {len(kept)} of {len(read.distinct)} distinct lessons kept.",
        "operations": curator.operations,
        "dropped": [*(rejected if curator.shown.asks_all else ()), *curator.dropped],
        "known": curator.known,
    }


def _consolidate(asked: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return MERGE for entries of a cluster that are one lesson, and REMOVE for harmful ones; no law applies."""
    operations: list[dict[str, Any]] = []
    for cluster in asked:
        by_lesson: dict[str, list[ShownEntry]] = defaultdict(list)
        for entry in entries_in(str(cluster.get("entries", "")).splitlines()):
            by_lesson[subject(entry.content) or key(entry.content)].append(entry)
        for entries in by_lesson.values():
            ids = [entry.id for entry in entries]
            if cluster["cluster"] == "harmful":
                operations += [{"type": "REMOVE", "entry_ids": [entry_id]} for entry_id in ids]
            elif len(ids) > 1:
                operations.append({"type": "MERGE", "entry_ids": ids, "content": entries[0].content})
    reasoning = "Simulated: one entry for each lesson."
    return {"reasoning": reasoning, "operations": operations, "dropped": [], "known": []}


def keep(reading: Reading, seed: int, law: Law = LAW, modes: Modes = NO_MODES) -> tuple[Load, list[str]]:
    """Return a call's load, and the keys of the lessons that the law lets it keep."""
    items = reading.items()
    causes = _causes(seed, items, [entry.content for entry in reading.entries])
    read = _load(reading, items, law, Failing(modes, causes))
    return read, _keep(read, law, causes)


def _by_lesson(items: Iterable[Item]) -> dict[str, list[Item]]:
    by_lesson: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        by_lesson[key(item.lesson)].append(item)
    return by_lesson


def _text_chars(value: Mapping[str, Any]) -> int:
    return sum(len(text) for text in value.values() if isinstance(text, str))


def _causes(seed: int, items: Iterable[Item], entries: Iterable[str]) -> tuple[str | int, ...]:
    """Return the causes of the draw: the data's and playbook's lessons as multisets, in any order and wording."""
    read = sorted(Counter(key(item.lesson) for item in items).items())
    known = sorted({key(entry) for entry in entries})
    return (seed, digest(*(f"{count} {lesson}" for lesson, count in read)).hex(), digest(*known).hex())


def _without_conflicts(
    by_lesson: Mapping[str, Sequence[Item]], failing: Failing, *, in_order: bool
) -> tuple[str, ...]:
    """Keep, of contradicting lessons, the one with more producers, with more reflections, the longer, the later one.

    ``in_order``: whether the prompt says that its order counts.
    """
    best: dict[str, str] = {}

    def rank(lesson: str) -> tuple[int, int, int, int, str]:
        items = by_lesson[lesson]
        producers, reflections = (
            max(item.producers for item in items),
            sum(item.reflections for item in items),
        )
        return producers, reflections, len(lesson), max(item.n for item in items) * in_order, lesson

    for lesson, items in by_lesson.items():
        about = subject(items[0].lesson) or lesson
        if not failing.sees_contradiction(about):
            about = lesson
        if about not in best or rank(lesson) > rank(best[about]):
            best[about] = lesson
    return tuple(sorted(best.values()))


def _keep(read: Load, law: Law, causes: Sequence[str | int]) -> list[str]:
    """Keep the law's share of the lessons; a draw rounds the count, another says which."""
    count = int(len(read.distinct) * law.keep_fraction(read.tokens) + draw("count", *causes))
    return sorted(read.distinct, key=lambda lesson: draw("which", lesson, *causes))[:count]


def summarise(reading: Reading, seed: int, law: Law = LAW, modes: Modes = NO_MODES) -> dict[str, Any]:
    """Return the lessons kept of a call's reflections or summary lines, each verbatim, once."""
    read, kept = keep(reading, seed, law, modes)
    return {
        "reasoning": f"Simulated: {len(kept)} of {len(read.distinct)} distinct lessons kept.",
        "summary_lines": list(_said(read, kept)),
    }


def _said(read: Load, kept: Sequence[str]) -> Iterator[str]:
    """Yield the statements of the kept lessons in their first wording, and the inventions."""
    by_lesson = _by_lesson(read.items)
    for lesson in kept:
        for items in read.failing.statements(by_lesson[lesson]):
            yield read.failing.said(items[0].lesson, None)
    yield from read.failing.inventions() if read.items else ()


def write(reading: Reading, seed: int, law: Law = LAW, modes: Modes = NO_MODES) -> dict[str, Any]:
    """Return the current text with the kept lessons of records or versions, between fences.

    Lines of the current text are read like a playbook's entries and stay, unless a kept lesson contradicts them.
    """
    current = _current(reading)
    entries = tuple(ShownEntry(id="", content=line) for line in current)
    read, kept = keep(replace(reading, entries=entries), seed, law, modes)
    lines = list(_merged(current, list(_said(read, kept)))) or [NO_RULES]
    summary = f"Simulated: {len(kept)} of {len(read.distinct)} distinct lessons kept."
    return {"text": "\n".join([summary, "```", *lines, "```"])}


def _current(reading: Reading) -> tuple[str, ...]:
    """Return the current lines; a single line in brackets is a remark that there are none."""
    lines = tuple(line for line in reading.current_text() if line.strip() not in {"", NO_RULES})
    is_remark = len(lines) == 1 and lines[0].startswith("(") and lines[0].endswith(")")
    return () if is_remark else lines


def _merged(current: Sequence[str], kept: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the next text; a lesson replaces the line that contradicts it."""
    about: dict[str, str] = {}
    others = [lesson for lesson in kept if about.setdefault(subject(lesson) or key(lesson), lesson) != lesson]
    for line in current:
        yield about.pop(subject(line) or key(line), line)
    yield from about.values()
    yield from (lesson for lesson in others if lesson not in current)
