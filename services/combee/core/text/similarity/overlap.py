"""How much of their words two texts share, rare words counting more; pure.

Only equal words count: paraphrases are found by embeddings or by a model. A ratio of letters confuses any two
sentences of one frame (`benchmarks/similarity.py`).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain

from combee.core.text.forms import SHORT
from combee.core.text.similarity.relevance import rarity
from combee.core.text.similarity.wording import MARKS, NEGATIONS, wording
from combee_schemas.playbook import Entry

REARRANGED = 0.9
"""Minimum share of words, grammar included, that a content and its contrary have in common."""
ROUNDING = 1e-6
"""By how much sums of weights in different orders may differ."""
Exact = tuple[tuple[str, ...], int]
"""The numbers of a content, and its number of negations."""
Words = frozenset[str]
_NUMBER = re.compile(r"[-+]?\d[\d.,:eE+-]*")
_STOP_WORDS = (
    "about above after all also any are as at be been before being below between both but by can could "
    "did do does each few first for from had has have her here his how if in into is it its itself more "
    "most must my need no not of off on once only or other our out over own same should so some such than "
    "that their them then there these they this those through to under until up use used using very was "
    "we were what when where whether which while who whose why will with would you your a an the"
)
"""Words of grammar, which would look rare in a playbook of few entries."""
_STOP = frozenset(_STOP_WORDS.split())
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n")


class _Weights:
    """BM25 weights of words: the fewer texts have a word, the more it weighs.

    Words of most texts, such as the frame of a formula, weigh next to nothing.
    """

    def __init__(self, texts: Iterable[Words]) -> None:
        known = list(texts)
        self.having = Counter(chain.from_iterable(known))
        by_count = {having: rarity(having, len(known)) for having in {0, *self.having.values()}}
        self._unknown = by_count.pop(0)
        self._by_word = {word: by_count[having] for word, having in self.having.items()}

    def of(self, words: Iterable[str]) -> float:
        """Return the sum of these words' weights."""
        # Summed in a fixed order, on which the last digit depends.
        return sum([self._by_word.get(word, self._unknown) for word in sorted(words)])

    def about(self, known: Iterable[str]) -> float:
        """Return the same of known words, but for the last digits."""
        return sum(map(self._by_word.__getitem__, known))

    @property
    def heaviest(self) -> float:
        """The largest weight of a known word."""
        return max(self._by_word.values(), default=0.0)


Pair = tuple[str, str]


class Overlap:
    """Compares entries by the words of their contents, without words of grammar."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._words = {entry.id: said_words(entry.content) for entry in entries}
        self._weights = _Weights(self._words.values())

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self._words

    def contained(self, text: str, entry_id: str) -> float:
        """Return the share of the lighter of the two, a text or an entry, that the other contains: 0 … 1."""
        own, known = said_words(text), self._words[entry_id]
        lighter = min(self._weights.of(own), self._weights.of(known))
        return self._weights.of(own & known) / lighter if lighter else 0.0

    def alike(self, least: float, *, most: int) -> dict[Pair, float]:
        """Return the pairs of entries that share at least ``least``, ids in order, each with its share.

        Compared are entries that share a word which at most ``most`` entries have.
        """
        names, weigh = sorted(self._words), self._weights.of
        words = [self._words[name] for name in names]
        heavy = [weigh(said) for said in words]
        masks = list(self._masks(words))
        heaviest = self._weights.heaviest
        found: dict[Pair, float] = {}
        for first, second in _sharing(words, self._weights.having, most):
            # Most pairs are far apart: the number of their common words shows it, or an unsorted sum.
            needed = least * (heavy[first] + heavy[second]) / (1 + least) - ROUNDING
            if (masks[first] & masks[second]).bit_count() * heaviest < needed:
                continue
            both = words[first] & words[second]
            if self._weights.about(both) < needed:
                continue
            together = weigh(words[first] | words[second])
            share = weigh(both) / together if together else 0.0
            if share >= least:
                found[names[first], names[second]] = share
        return found

    def _masks(self, words: Iterable[Words]) -> Iterator[int]:
        """Yield each text's words as the bits of a number."""
        bits = {word: 1 << place for place, word in enumerate(self._weights.having)}
        return (sum(map(bits.__getitem__, said)) for said in words)


def _sharing(words: Sequence[Words], having: Mapping[str, int], most: int) -> Iterator[tuple[int, int]]:
    """Yield the places of texts that share a word which at most ``most`` texts have, in order."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, said in enumerate(words):
        for word in said:
            if having[word] <= most:
                places[word].append(place)
    for place, said in enumerate(words):
        near = set[int]().union(*(places[word] for word in said if word in places))
        yield from ((place, other) for other in sorted(near) if other > place)


def contradicts(text: str, content: str) -> bool:
    """Return whether a text has a content's words with another number or negation, in any order."""
    words = _plain(content)
    own = _plain(text) if len(text) <= SHORT else _plain_of_long(text)
    if len(words & own) < REARRANGED * len(words):
        return False
    sentences = [
        sentence
        for sentence in _SENTENCE.split(text)
        for others in (_plain(sentence),)
        if len(words & others) >= REARRANGED * len(words | others)
    ]
    return bool(sentences) and not any(_exact(sentence) == _exact(content) for sentence in sentences)


@lru_cache(4_096)
def _plain(content: str) -> Words:
    """Return the words that are neither numbers nor negations, which must agree exactly or contradict."""
    return frozenset(word for word in _words(content) - NEGATIONS if not _NUMBER.fullmatch(word))


@lru_cache(256)
def _plain_of_long(text: str) -> Words:
    """Return the plain words of a whole reflection, cached for its batch's calls only."""
    words = frozenset(wording.__wrapped__(text).words) - MARKS - NEGATIONS
    return frozenset(word for word in words if not _NUMBER.fullmatch(word))


def common(content: str, other: str) -> float:
    """Return the share of two contents' words that both contain, each word counting the same: 0 … 1."""
    words, others = said_words(content), said_words(other)
    together = words | others
    return len(words & others) / len(together) if together else 0.0


def said_words(text: str) -> Words:
    """Return the words of a text without words of grammar."""
    return _words(text) - _STOP


@lru_cache(4_096)
def _words(content: str) -> Words:
    return frozenset(wording(content).words) - MARKS


@lru_cache(4_096)
def _exact(content: str) -> Exact:
    words = wording(content).words
    numbers = sorted(word for word in words if _NUMBER.fullmatch(word))
    return tuple(numbers), sum(word in NEGATIONS for word in words)
