"""Which entries have most to do with a text: BM25 (Robertson and Zaragoza, 2009), pure, ties in a fixed order."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from math import log

from combee.core.playbook.wording import evened
from combee.core.prompt import entry_tokens
from combee_schemas.playbook import Entry

WORD = re.compile(r"\w+")
SATURATION, LENGTH = 1.2, 0.75
"""k1 and b of BM25: how soon a repeated word adds nothing, how much long entries are held back."""
MAX_QUERY_CHARS = 20_000
"""Of a longer text the beginning and the end are compared."""


def best_entries(
    entries: Sequence[Entry],
    *,
    query: str | None = None,
    k: int | None = None,
    budget_tokens: int | None = None,
) -> tuple[Entry, ...]:
    """Return the best ``k`` entries that fit ``budget_tokens``, in their own order.

    Best is what has most to do with ``query``; without one, what helped most: balance of counters, evidence, newest.
    """
    if k is None and (budget_tokens is None or sum(map(entry_tokens, entries)) <= budget_tokens):
        return tuple(entries)
    scores = relevance(entries, query) if query else dict.fromkeys((entry.id for entry in entries), 0.0)
    ranked = sorted(entries, key=lambda entry: (-scores[entry.id], *_use(entry)))
    kept: set[str] = set()
    left = budget_tokens
    for entry in ranked[: len(ranked) if k is None else max(0, k)]:
        if left is not None and entry_tokens(entry) > left:
            break
        left = None if left is None else left - entry_tokens(entry)
        kept.add(entry.id)
    return tuple(entry for entry in entries if entry.id in kept)


def _use(entry: Entry) -> tuple[int, int, int, str]:
    return entry.harmful - entry.helpful, -entry.evidence_count, -entry.updated_version, entry.id


def relevance(entries: Sequence[Entry], query: str) -> Mapping[str, float]:
    """Return per entry id how much it has to do with ``query``: BM25 over words, singular and plural alike."""
    half = MAX_QUERY_CHARS // 2
    wanted = set(_words(query if len(query) <= MAX_QUERY_CHARS else f"{query[:half]} {query[-half:]}"))
    bags = {entry.id: Counter(_words(f"{entry.section} {entry.content}")) for entry in entries}
    mean = sum(bag.total() for bag in bags.values()) / max(1, len(bags)) or 1.0
    having = Counter(word for bag in bags.values() for word in wanted & bag.keys())
    rarity = {word: log(1 + (len(bags) - n + 0.5) / (n + 0.5)) for word, n in having.items()}
    return {
        entry_id: sum(
            rarity[word]
            * bag[word]
            * (SATURATION + 1)
            / (bag[word] + SATURATION * (1 - LENGTH + LENGTH * bag.total() / mean))
            for word in sorted(wanted & bag.keys())
        )
        for entry_id, bag in bags.items()
    }


def _words(text: str) -> list[str]:
    return [evened(word.casefold()) for word in WORD.findall(text)]
