"""How near two contents are that do not say the same: by the words they share, those that few others have first.

Word for word only: what says the same in other words is found by a model (``combee.core.methods``), not here.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import log

from combee.core.playbook.wording import wording
from combee.core.relevance import rarity

NEAR = 0.75
"""The share of their words that near-duplicates have in common. Of 50 quantities that are reported much alike no two
reach 0.7."""
RELATED = 1 / 3
"""The share of a content's words that what it was made of has, at least."""
Exact = tuple[tuple[str, ...], int]
"""The numbers of a content, and how many negations it has."""
_NUMBER = re.compile(r"[-+]?\d[\d.,:eE+-]*")
_NEGATIONS = frozenset({"not", "no", "none", "neither", "nor"})


class Nearness:
    """Finds near-duplicates among the contents of entries, by their ids."""

    def __init__(self, contents: Mapping[str, str]) -> None:
        bags = {entry_id: _words(content) for entry_id, content in contents.items()}
        having = Counter(word for bag in bags.values() for word in bag)
        self._weights = {word: log(1 + len(bags) / count) for word, count in having.items()}
        self._bags = {entry_id: (bag, self._weight(bag)) for entry_id, bag in bags.items()}
        self._exact = {entry_id: _exact(content) for entry_id, content in contents.items()}
        self._having: dict[tuple[Exact, str], list[str]] = defaultdict(list)
        for entry_id, (bag, _) in self._bags.items():
            for word in bag:
                self._having[self._exact[entry_id], word].append(entry_id)

    def near(self, entry_id: str) -> Iterator[str]:
        """Yield the entries with the same numbers and negations and nearly the same words."""
        words, weight = self._bags[entry_id]
        for other in dict.fromkeys(self._candidates(entry_id)):
            others, other_weight = self._bags[other]
            # Cheap first: what is much longer cannot be near.
            if other == entry_id or min(weight, other_weight) < NEAR * max(weight, other_weight):
                continue
            shared = self._weight(words & others)
            if shared >= NEAR * (weight + other_weight - shared):
                yield other

    def _candidates(self, entry_id: str) -> Iterator[str]:
        """Yield the entries that share one of the heaviest words: who has none of them lacks too much."""
        words, weight = self._bags[entry_id]
        lacking = 0.0
        for word in sorted(words, key=lambda word: (-self._weights[word], word)):
            yield from self._having[self._exact[entry_id], word]
            lacking += self._weights[word]
            if lacking > (1 - NEAR) * weight:
                return

    def _weight(self, words: Iterable[str]) -> float:
        return sum(self._weights[word] for word in sorted(words))


class Relatedness:
    """Tells whether a content can have been made of one of several items, or of none of them."""

    def __init__(self, items: Sequence[str]) -> None:
        self._bags = [_words(item) for item in items]
        different = set(self._bags)
        self._count = len(different)
        self._having = Counter(word for bag in different for word in bag)

    def related(self, content: str, places: Iterable[int]) -> Iterator[int]:
        """Yield those of the places whose items have some of the rarer words of a content."""
        words = _words(content)
        least = RELATED * self._rarity(words)
        return (at for at in places if self._rarity(words & self._bags[at]) >= least)

    def _rarity(self, words: Iterable[str]) -> float:
        return sum(rarity(max(1, self._having[word]), self._count) for word in sorted(words))


@lru_cache(4_096)
def _words(content: str) -> frozenset[str]:
    return frozenset(wording(content).words)


@lru_cache(4_096)
def _exact(content: str) -> Exact:
    words = wording(content).words
    numbers = sorted(word for word in words if _NUMBER.fullmatch(word))
    return tuple(numbers), sum(word in _NEGATIONS for word in words)
