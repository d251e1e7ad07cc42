"""Sections: their order, two headers that name the same one (the first spelling is kept), ids of their entries."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from combee.core.text.forms import comparable
from combee_schemas.playbook import ACE_SECTIONS, Entry

MAX_SECTION_CHARS = 80
MAX_DIGITS = 15
"""Maximum digits of a number from which new ids go on: a foreign id may have more than 64 bits hold."""
SLUGS = dict(zip(ACE_SECTIONS, ("str", "calc", "code", "err", "prob", "ctx", "misc"), strict=True))
_JOINTS = re.compile(r"[^\w+#]+|_+")
"""What separates words; C, C++ and C# are three names."""


def section_order(sections: Sequence[str], entries: Iterable[Entry]) -> tuple[str, ...]:
    """Return every section once: the listed ones in order, then those named only by entries."""
    return tuple(dict.fromkeys([*sections, *(entry.section for entry in entries)]))


@lru_cache(4_096)
def section_key(name: str) -> str:
    """Return a form that is equal for two spellings of one section: words without punctuation."""
    words = _JOINTS.sub(" ", comparable(name.lstrip("# ").replace("&", " and "))).split()
    return " ".join(words) or comparable(name)


def same_section(name: str, known: Iterable[str]) -> str:
    """Return the known section that ``name`` means, in its spelling; ``name`` itself if there is none."""
    known = tuple(known)
    if name in known:
        return name
    key = section_key(name)
    return next((section for section in known if section_key(section) == key), name)


def clash(entries: Iterable[Entry]) -> str | None:
    """Return why entries cannot be components, because a section has two texts; None: they can."""
    sections = [entry.section for entry in entries]
    twice = sorted({section for section in sections if sections.count(section) > 1})
    return f"components have one text each, and there are several for {', '.join(twice)}" if twice else None


@lru_cache(4_096)
def slug(section: str) -> str:
    """Return the short prefix of the ids of a section's entries."""
    known = SLUGS.get(same_section(section, SLUGS))
    initials = "".join(word[0] for word in re.findall(r"[a-z0-9]+", section.lower()))
    return known or initials[:4] or "misc"


def id_in(section: str, number: int) -> str:
    """Return the id of an entry of a section, such as ``calc-00012``."""
    return f"{slug(section)}-{number:05d}"


def number_of(entry_id: str) -> int:
    """Return the number in an id such as ``calc-00012``, so that new ids never collide; 0: none to go on from."""
    tail = entry_id.rpartition("-")[2]
    return int(tail) if tail.isascii() and tail.isdigit() and len(tail) <= MAX_DIGITS else 0
