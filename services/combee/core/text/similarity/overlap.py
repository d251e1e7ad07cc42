"""How much of their words two texts share, rare words counting more; pure.

Only equal words count: paraphrases are found by embeddings or by a model. A ratio of letters confuses any two
sentences of one frame (`benchmarks/similarity.py`).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain

from combee.core.text.figures import figures, lacking, qualifiers
from combee.core.text.forms import SHORT
from combee.core.text.similarity.relevance import rarity
from combee.core.text.similarity.wording import MARKS, NEGATIONS, read_wording, wording
from combee_schemas.playbook import Entry

ALIKE = 0.4
"""How much of what two entries say together both must say, to be near-duplicates.

Of the 318 entries that a real model learned on AppWorld 141 pairs are, in 64 clusters of two to five.
"""
MOSTLY = 0.75
"""Minimum share of a consolidated content's words, grammar aside, that one of its texts has."""
REARRANGED = 0.9
"""Minimum share of words, grammar included, that a content and its contrary have in common."""
ROUNDING = 1e-6
"""By how much shares may differ whose weights are summed in different orders."""
Words = frozenset[str]
_NUMBER = re.compile(r"[-+]?\d[\d.,:eE+-]*")
_STOP_WORDS = (
    "about above after all also any are as at be been before being below between both but by can could "
    "did do does each few first for from had has have her here his how if in into is it its itself more "
    "most must my need no not of off on once only or other our out over own s same should so some such than "
    "that their them then there these they this those through to under until up use used using very was "
    "we were what when where whether which while who whose why will with would you your a an the"
)
"""Words of grammar, which would look rare in a playbook of few entries."""
_STOP = frozenset(_STOP_WORDS.split())
_JOINING = frozenset(
    {"also", "and", "are", "be", "is", "it", "that", "then", "these", "they", "this", "which"}
)
"""Words of grammar with which texts may be joined; others, such as "after" for "before", may turn them."""
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

    def by_rarity(self) -> dict[str, float]:
        """Return all known words' weights, the rarest first."""
        return {word: self._by_word[word] for word, _ in reversed(self.having.most_common())}


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

        One of the words that they share must be rare: at most ``most`` entries have it.
        """
        weigh, having = self._weights.of, self._weights.having
        found: dict[Pair, float] = {}
        for first, second in self._candidates(least):
            words, others = self._words[first], self._words[second]
            both = words & others
            share = weigh(both) / weigh(words | others)
            if share >= least and min(map(having.__getitem__, both)) <= most:
                found[first, second] = share
        return found

    def _candidates(self, least: float) -> Iterator[Pair]:
        """Yield every pair that shares at least ``least``, and few others; ids in order.

        Prefix filtering (Xiao et al., 2008): what a pair shares weighs at least ``least`` of each. So each is looked
        up only by its rarest words, until the others weigh less. Besides common words among those, a pair shares at
        most what the others of one of them weigh.
        """
        least, needed = least - ROUNDING, least / (1 + least) - ROUNDING
        by_rarity = self._weights.by_rarity()
        ranks, ranked = {word: rank for rank, word in enumerate(by_rarity)}, list(by_rarity.values())
        found_by: dict[int, list[str]] = defaultdict(list)
        weights, others_weigh = dict[str, float](), dict[str, float]()
        for entry_id, words in self._words.items():
            weight = left = self._weights.about(words)
            shared: dict[str, float] = defaultdict(float)
            for rank in sorted(map(ranks.__getitem__, words)):
                if left < least * weight:
                    break
                for other in found_by[rank]:
                    shared[other] += ranked[rank]
                found_by[rank].append(entry_id)
                left -= ranked[rank]
            weights[entry_id], others_weigh[entry_id] = weight, left
            for other, so_far in shared.items():
                enough = needed * (weight + weights[other])
                if so_far + max(left, others_weigh[other]) < enough:
                    continue
                if self._weights.about(words & self._words[other]) >= enough:
                    yield min(entry_id, other), max(entry_id, other)


def contradicts(text: str, content: str) -> bool:
    """Return whether a text has a content's words with another number or negation, in any order.

    A number or a negation that only one of them has may be about what it alone says.
    """
    words = _plain(content)
    own = _plain(text) if len(text) <= SHORT else _plain_of_long(text)
    if len(words & own) < REARRANGED * len(words):
        return False
    sentences = [
        sentence
        for sentence, others in _plain_sentences(text)
        if len(words & others) >= REARRANGED * len(words | others)
    ]
    return bool(sentences) and all(_is_turned(sentence, content) for sentence in sentences)


def _is_turned(sentence: str, content: str) -> bool:
    negations, negated = _negations(sentence), _negations(content)
    more, fewer = (sentence, content) if negations > negated else (content, sentence)
    is_replaced = bool(lacking(sentence, content)) and bool(lacking(content, sentence))
    return is_replaced or (negations != negated and _plain(more) <= _plain(fewer))


@lru_cache(4_096)
def _plain(content: str) -> Words:
    """Return the words that are neither numbers nor negations, which must agree exactly or contradict."""
    return frozenset(word for word in _words(content) - NEGATIONS if not _NUMBER.fullmatch(word))


@lru_cache(8)
def _plain_of_long(text: str) -> Words:
    """Return the plain words of a whole reflection, cached for its batch's calls only."""
    words = frozenset(read_wording(text).words) - MARKS - NEGATIONS
    return frozenset(word for word in words if not _NUMBER.fullmatch(word))


@lru_cache(8)
def _plain_sentences(text: str) -> Sequence[tuple[str, Words]]:
    """Return the sentences of a text with their plain words; a long one may have more than are remembered."""
    return tuple((sentence, _plain(sentence)) for sentence in _SENTENCE.split(text))


def common(content: str, other: str) -> float:
    """Return the share of two contents' words that both contain, each word counting the same: 0 … 1.

    Signs are no words: formulas of different things have most of theirs in common.
    """
    words, others = (
        frozenset(word for word in said_words(text) if any(map(str.isalnum, word)))
        for text in (content, other)
    )
    together = words | others
    return len(words & others) / len(together) if together else 0.0


def unites(content: str, texts: Sequence[str]) -> bool:
    """Return whether a content only says what texts say: it has no word, figure, negation or condition of its own.

    So it is no longer than they are together. In another order the same words can say the contrary, so most of them
    stand in the order of one text; so can they with a negation of another text.
    """
    return (
        all(_negations(content) == _negations(text) for text in texts)
        and len(content) <= sum(map(len, texts))
        and (_words(content) - _JOINING).issubset(chain.from_iterable(map(_words, texts)))
        and set(figures(content)).issubset(chain.from_iterable(map(figures, texts)))
        and set(qualifiers(content)).issubset(chain.from_iterable(map(qualifiers, texts)))
        and any(_follows(content, text) for text in texts)
    )


def _negations(content: str) -> int:
    return sum(word.casefold() in NEGATIONS for word in wording(content).words)


def _follows(content: str, text: str) -> bool:
    """Return whether a text has most words of a content, and these, each where it stands first, in their order."""
    said, own = said_words(content), wording(text).words
    if len(said & said_words(text)) < MOSTLY * len(said):
        return False
    known, left = frozenset(own), iter(own)
    return all(word in left for word in dict.fromkeys(wording(content).words) if word in known)


def said_words(text: str) -> Words:
    """Return the words of a text without words of grammar."""
    return _words(text) - _STOP


def _words(content: str) -> Words:
    return _words_of_short(content) if len(content) <= SHORT else _words_of_short.__wrapped__(content)


@lru_cache(4_096)
def _words_of_short(content: str) -> Words:
    return frozenset(wording(content).words) - MARKS
