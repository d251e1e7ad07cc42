"""How much two texts share, rare words counting more; pure.

The weight of a word is BM25's: what most entries say, such as the frame of a formula, weighs next to nothing. A ratio
of letters takes any two sentences of one frame for the same (`benchmarks/similarity.py`).
"""

from collections import Counter
from collections.abc import Iterable

from combee.core.playbook.wording import wording
from combee.core.relevance import rarity
from combee_schemas.playbook import Entry

_STOP_WORDS = (
    "about above after all also any are as at be been before being below between both but by can could "
    "did do does each few first for from had has have her here his how if in into is it its itself more "
    "most must my need no not of off on once only or other our out over own same should so some such than "
    "that their them then there these they this those through to under until up use used using very was "
    "we were what when where whether which while who whose why will with would you your a an the"
)
"""Words of grammar: in a playbook of few entries they would look rare."""
_STOP = frozenset(_STOP_WORDS.split())


class Overlap:
    """The words of some entries and how rare each is among them."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._words = {entry.id: said_words(entry.content) for entry in entries}
        self._having = Counter(word for words in self._words.values() for word in words)

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self._words

    def contained(self, text: str, entry_id: str) -> float:
        """Return how much of the lighter of the two, a text or an entry, the other says too: 0 … 1."""
        said, known = said_words(text), self._words[entry_id]
        lighter = min(self._weight(said), self._weight(known))
        return self._weight(said & known) / lighter if lighter else 0.0

    def shared(self, entry_id: str, other_id: str) -> float:
        """Return how much of what two entries say together both say: 0 … 1."""
        words, others = self._words[entry_id], self._words[other_id]
        together = self._weight(words | others)
        return self._weight(words & others) / together if together else 0.0

    def having(self, word: str) -> int:
        """Return how many entries have a word."""
        return self._having[word]

    def words(self, entry_id: str) -> frozenset[str]:
        """Return the words of an entry."""
        return self._words[entry_id]

    def _weight(self, words: Iterable[str]) -> float:
        return sum(rarity(self._having[word], len(self._words)) for word in sorted(words))


def said_words(text: str) -> frozenset[str]:
    """Return the words of a text that are no grammar."""
    return frozenset(wording(text).words) - _STOP
