"""The stand-in's notion of a lesson, and when two texts are the same lesson."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from combee_sim.family import desk
from combee_sim.family.conventions import read_convention
from combee_sim.family.wordings import NO_TAG, TAGGING, fields_of, plain

SECTIONS = (
    (re.compile(r"\b(tag|entity|sentence)\b", re.IGNORECASE), "CONTEXT CLUES & INDICATORS"),
    (re.compile(r"\bcomputed? (?:it )?(as|with)\b", re.IGNORECASE), "FORMULAS & CALCULATIONS"),
    (re.compile(r"\b(never|avoid|mistakes?|do not)\b", re.IGNORECASE), "COMMON MISTAKES TO AVOID"),
    (re.compile(r"\b(code|api|function|script)s?\b", re.IGNORECASE), "CODE SNIPPETS & TEMPLATES"),
    (re.compile(r"\b(try|equations?|operators?|first)\b", re.IGNORECASE), "PROBLEM-SOLVING HEURISTICS"),
)
_ENTRY = re.compile(r"\[(?P<id>[\w-]*\d)\] (?:helpful=\d+ harmful=\d+ :: )?(?P<content>.*)")
_ENDS_ENTRY = ("## ", "[", "<", "{")
_IGNORED = re.compile(r"[\"'“”‘’`*_,;:?]|!(?!=)|\.(?!\d)")
_NAMED = re.compile(r"^\s*(?P<subject>[^=:]{3,80}?): compute it with ", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One numbered item of an aggregator's data that carries a lesson."""

    n: int
    lesson: str
    kind: str = "ADD"
    entry_ids: tuple[str, ...] = ()
    producers: int = 1
    """Number of producers that the prompt says are behind the item."""
    reflections: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownEntry:
    """One playbook entry in a prompt."""

    id: str
    content: str


@lru_cache(maxsize=20_000)
def key(text: str) -> str:
    """Return a key that identifies a lesson regardless of case, spacing, punctuation or wording."""
    convention = read_convention(text)
    return text_of(convention.sentence() if convention else plain(text))


def text_of(text: str) -> str:
    """Return a text without case, spacing and punctuation."""
    return " ".join(_IGNORED.sub(" ", text).casefold().split())


@lru_cache(maxsize=20_000)
def subject(text: str) -> str | None:
    """Return the topic of a lesson; two different lessons on one topic contradict each other."""
    if rule := desk.rule_in(text):
        return rule[0].about
    if convention := read_convention(text):
        return convention.quantity
    if named := _NAMED.match(plain(text)):
        return named["subject"].casefold()
    tagged = fields_of(TAGGING, text) or fields_of(NO_TAG, text)
    return tagged["tag"].casefold() if tagged else None


def section_of(lesson: str) -> str:
    """Return the section a lesson belongs to, from its own words alone."""
    for pattern, section in SECTIONS:
        if pattern.search(lesson):
            return section
    return "STRATEGIES & INSIGHTS"


def entries_in(lines: Iterable[str]) -> Iterator[ShownEntry]:
    """Yield the playbook's entry lines; a line that is no entry, header or fence continues the one above."""
    open_id, parts = "", [""]
    for line in lines:
        if match := _ENTRY.match(line):
            if open_id:
                yield ShownEntry(id=open_id, content=" ".join(parts))
            open_id, parts = match["id"], [match["content"]]
        elif not line.strip() or line.startswith(_ENDS_ENTRY):
            if open_id:
                yield ShownEntry(id=open_id, content=" ".join(parts))
            open_id = ""
        elif open_id:
            parts.append(line.strip())
    if open_id:
        yield ShownEntry(id=open_id, content=" ".join(parts))
