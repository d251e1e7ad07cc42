"""The stand-in as aggregator, summariser and writer: it keeps the share of distinct lessons that the law allows."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from combee.sim.chance import draw
from combee.sim.family.lessons import Item, ShownEntry, key, section_of, subject
from combee.sim.law.law import LAW, Law
from combee.sim.roles.reading import NO_RULES, Reading
from combee_schemas.digests import digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one call has to carry: its items, the distinct lessons in them, the tokens the law counts."""

    items: tuple[Item, ...]
    distinct: tuple[str, ...]
    tokens: float


def load(reading: Reading, law: Law = LAW) -> Load:
    """Return what a call reads; its tokens are what ``law`` counts."""
    items = reading.items()
    text_chars = sum(map(_text_chars, reading.objects))
    entries = [entry.content for entry in reading.entries]
    return Load(
        items=items,
        distinct=_without_conflicts(_by_lesson(items)),
        tokens=law.count(entries, [item.lesson for item in items], text_chars),
    )


def aggregate(reading: Reading, seed: int, law: Law = LAW) -> dict[str, Any]:
    """Return operations for the lessons kept of a call's reflections or proposals, or on clusters of entries."""
    asked = [value for value in reading.objects if "cluster" in value]
    if asked:
        return _consolidate(asked)
    read, kept = keep(reading, seed, law)
    known = {name: entry for entry in reading.entries if (name := subject(entry.content))}
    by_lesson = _by_lesson(read.items)
    said = _said_already(reading, by_lesson)
    return {
        "reasoning": f"Simulated: {len(kept)} of {len(read.distinct)} distinct lessons kept.",
        "operations": [_operation(by_lesson[lesson], known) for lesson in kept if lesson not in said],
        "dropped": [item.n for item in read.items if key(item.lesson) not in read.distinct],
        "known": [
            {"n": item.n, "entry_id": said[lesson]}
            for lesson in kept
            if lesson in said
            for item in by_lesson[lesson]
        ],
    }


def _consolidate(asked: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return MERGE for entries of a cluster that are one lesson, and REMOVE for those that harm; no law applies."""
    operations: list[dict[str, Any]] = []
    for cluster in asked:
        by_lesson: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for entry in cluster.get("entries", ()):
            by_lesson[subject(entry["content"]) or key(entry["content"])].append(entry)
        for entries in by_lesson.values():
            ids = [entry["id"] for entry in entries]
            if cluster["cluster"] == "harmful":
                operations += [{"type": "REMOVE", "entry_ids": [entry_id]} for entry_id in ids]
            elif len(ids) > 1:
                content = max(entries, key=lambda entry: entry["helpful"] - entry["harmful"])["content"]
                operations.append({"type": "MERGE", "entry_ids": ids, "content": content})
    return {
        "reasoning": "Simulated: one entry for each lesson.",
        "operations": operations,
        "dropped": [],
        "known": [],
    }


def _said_already(reading: Reading, by_lesson: Mapping[str, Sequence[Item]]) -> dict[str, str]:
    """Return the lessons that entries have word for word, with the entry, where the prompt asks for them."""
    if not any('"known"' in line for line in reading.lines):
        return {}
    entries = {key(entry.content): entry.id for entry in reading.entries}
    return {
        lesson: entries[lesson]
        for lesson, items in by_lesson.items()
        if lesson in entries and all(item.kind == "ADD" for item in items)
    }


def keep(reading: Reading, seed: int, law: Law = LAW) -> tuple[Load, list[str]]:
    """Return what a call reads, and the keys of the lessons that the law lets it keep."""
    read = load(reading, law)
    entries = [entry.content for entry in reading.entries]
    return read, _keep(read, law, _causes(seed, read.items, entries))


def _by_lesson(items: Iterable[Item]) -> dict[str, list[Item]]:
    found: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        found[key(item.lesson)].append(item)
    return found


def _text_chars(value: Mapping[str, Any]) -> int:
    return sum(len(text) for text in value.values() if isinstance(text, str))


def _causes(seed: int, items: Iterable[Item], entries: Iterable[str]) -> tuple[str | int, ...]:
    """Name what the draw depends on: lessons as a multiset and the playbook's, never order or wording."""
    read = sorted(Counter(key(item.lesson) for item in items).items())
    known = sorted({key(entry) for entry in entries})
    return (seed, digest(*(f"{count} {lesson}" for lesson, count in read)).hex(), digest(*known).hex())


def _without_conflicts(by_lesson: Mapping[str, Sequence[Item]]) -> tuple[str, ...]:
    """Of lessons that contradict each other keep the one more items carry, then the longer one."""
    best: dict[str, str] = {}
    for lesson, items in by_lesson.items():
        about = subject(items[0].lesson) or lesson
        rank = (len(items), len(lesson), lesson)
        rival = best.get(about)
        if rival is None or rank > (len(by_lesson[rival]), len(rival), rival):
            best[about] = lesson
    return tuple(sorted(best.values()))


def _keep(read: Load, law: Law, causes: Sequence[str | int]) -> list[str]:
    """Keep the law's share of the lessons; a draw rounds the count, another says which."""
    count = int(len(read.distinct) * law.keep_fraction(read.tokens) + draw("count", *causes))
    return sorted(read.distinct, key=lambda lesson: draw("which", lesson, *causes))[:count]


def _operation(items: Sequence[Item], known: Mapping[str, ShownEntry]) -> dict[str, Any]:
    lesson = min(item.lesson for item in items)
    kind, entry_ids = _target(items, lesson, known)
    return {
        "type": kind,
        "section": section_of(lesson),
        "content": lesson,
        "entry_ids": list(entry_ids),
        "sources": sorted({item.n for item in items}),
    }


def _target(
    items: Sequence[Item], lesson: str, known: Mapping[str, ShownEntry]
) -> tuple[str, tuple[str, ...]]:
    """Correct an entry that contradicts the lesson, pass a proposed correction on, add the rest."""
    entry = known.get(subject(lesson) or "")
    if entry is not None and key(entry.content) != key(lesson):
        return "UPDATE", (entry.id,)
    proposed: Iterator[Item] = (item for item in items if item.kind in ("UPDATE", "MERGE") and item.entry_ids)
    corrections = sorted((item.kind, item.entry_ids) for item in proposed)
    return corrections[-1] if corrections else ("ADD", ())


def summarise(reading: Reading, seed: int, law: Law = LAW) -> dict[str, Any]:
    """Return the lessons kept of a call's reflections or summary lines, each verbatim, once."""
    read, kept = keep(reading, seed, law)
    said = {key(item.lesson): item.lesson for item in reversed(read.items)}
    return {
        "reasoning": f"Simulated: {len(kept)} of {len(read.distinct)} distinct lessons kept.",
        "summary_lines": [said[lesson] for lesson in kept],
    }


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
