"""Relevance of entries to a text: BM25 (Robertson and Zaragoza, 2009), pure, ties in a fixed order."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import log

from combee.core.names.sources import supporters
from combee.core.playbook.budget import balance, entry_tokens
from combee.core.text.forms import comparable
from combee.core.text.similarity.wording import evened
from combee_schemas.playbook import Entry
from combee_schemas.trace import Trace

BAGS_KEPT = 8_192
"""Cache size: bags of words. With less room than a playbook has entries, every look-up reads all texts."""
WORD = re.compile(r"\w+")
SATURATION, LENGTH = 1.2, 0.75
"""k1 and b of BM25: the saturation of repeated words, and the penalty of long entries."""
MAX_QUERY_CHARS = 20_000
"""Maximum characters of a query; a longer one is reduced to its beginning and end."""


def best_entries(
    entries: Sequence[Entry],
    *,
    query: str | None = None,
    k: int | None = None,
    budget_tokens: int | None = None,
    several: bool = False,
) -> tuple[Entry, ...]:
    """Return those of the best ``k`` entries that fit ``budget_tokens``, in their own order.

    The most relevant to ``query`` are best; without a query, the most helpful: balance of counters, then evidence,
    then the newest. Where ``several`` sources teach, their words count, and of equals the sources behind them first.
    """
    if k is None and (budget_tokens is None or sum(map(entry_tokens, entries)) <= budget_tokens):
        return tuple(entries)
    scores = relevance(entries, query) if query else dict.fromkeys((entry.id for entry in entries), 0.0)
    ranked = sorted(entries, key=lambda entry: (-scores[entry.id], *_use(entry, several=several)))
    kept: set[str] = set()
    left = budget_tokens
    for entry in ranked[: len(ranked) if k is None else max(0, k)]:
        if left is not None and entry_tokens(entry) > left:
            continue
        left = None if left is None else left - entry_tokens(entry)
        kept.add(entry.id)
    return tuple(entry for entry in entries if entry.id in kept)


def entries_to_judge(entries: Sequence[Entry], trace: Trace, budget_tokens: int) -> tuple[Entry, ...]:
    """Return the entries for a run's reflector: those its agent used, otherwise those it was shown."""
    shown = frozenset(trace.shown.entry_ids) if trace.shown else None
    used = frozenset(trace.bullet_ids) if shown is None else shown & frozenset(trace.bullet_ids)
    given = [entry for entry in entries if entry.id in used]
    if not given and shown:
        given = [entry for entry in entries if entry.id in shown]
    return best_entries(given, query=trace.task, budget_tokens=budget_tokens)


def _use(entry: Entry, *, several: bool) -> tuple[int | str, ...]:
    sources = len(supporters(entry)) if several else 0
    evidence = -entry.evidence_count, -entry.updated_version
    return -balance(entry, several=several), -sources, *evidence, entry.id


def relevance(entries: Sequence[Entry], query: str) -> Mapping[str, float]:
    """Return each entry's relevance to ``query`` by id: BM25 over words, singular and plural alike."""
    return _Bags(entries, only=_wanted(query)).scores(query)


def rarity(having: int, count: int) -> float:
    """Return BM25's weight of a word that ``having`` of ``count`` texts have: nearly 0 if all have it."""
    return log(1 + (count - having + 0.5) / (having + 0.5))


class _Bags:
    """Entries as bags of words, compared with several texts in turn."""

    def __init__(self, entries: Sequence[Entry], *, only: frozenset[str] | None = None) -> None:
        """Index entries by their words, or by ``only`` these."""
        self._lengths: dict[str, int] = {}
        self._having: dict[str, list[tuple[str, int]]] = defaultdict(list)
        """Word → the entries with it, and its frequency in each."""
        for entry in entries:
            bag, self._lengths[entry.id] = _bag(f"{entry.section} {entry.content}")
            for word in bag if only is None else bag.keys() & only:
                self._having[word].append((entry.id, bag[word]))
        self._mean = sum(self._lengths.values()) / max(1, len(self._lengths)) or 1.0

    def scores(self, query: str) -> Mapping[str, float]:
        scores = dict.fromkeys(self._lengths, 0.0)
        for word in sorted(_wanted(query) & self._having.keys()):
            having = self._having[word]
            rare = rarity(len(having), len(self._lengths))
            for entry_id, count in having:
                length = SATURATION * (1 - LENGTH + LENGTH * self._lengths[entry_id] / self._mean)
                scores[entry_id] += rare * count * (SATURATION + 1) / (count + length)
        return scores


@lru_cache(BAGS_KEPT)
def _bag(text: str) -> tuple[Counter[str], int]:
    """Return the words of a text with their frequencies, and how many there are."""
    words = _words(text)
    return Counter(words), len(words)


@lru_cache(8)
def _wanted(query: str) -> frozenset[str]:
    half = MAX_QUERY_CHARS // 2
    return frozenset(_words(query if len(query) <= MAX_QUERY_CHARS else f"{query[:half]} {query[-half:]}"))


def _words(text: str) -> list[str]:
    return [evened(word) for word in WORD.findall(comparable(text))]
