"""Which of many statements say a lesson, by their words or by their meaning; pure."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import dist, hypot

from combee.core.text.similarity.overlap import said_words
from combee.core.text.similarity.saying import Judgement, Thresholds, judge
from combee.core.text.similarity.wording import wording

EXACTLY = Judgement(verdict="yes", score=1.0, by="words")
COMPARED = 8
"""Number of statements that are compared with a lesson: the ones that share most of its rare words."""
MAX_PAIRS = 200_000
"""Maximum pairs of embeddings compared for one batch, about two seconds; above, only statements that share a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Similarity:
    """What tells that two texts say the same: words, and embeddings where there are any."""

    thresholds: Thresholds = Thresholds()
    vectors: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Embeddings by text."""


BY_WORDS = Similarity()


class Witness:
    """Statements to be compared with a batch's lessons."""

    def __init__(self, statements: Sequence[str], lessons: int, similarity: Similarity) -> None:
        self._statements = statements
        self._similarity = similarity
        self._units = [_unit(similarity.vectors.get(text, ())) for text in statements]
        self._all = len(statements) * lessons <= MAX_PAIRS
        """Whether each lesson's embedding is compared with each statement's."""
        self._by_text: dict[str, list[int]] = defaultdict(list)
        self._having: dict[str, list[int]] = defaultdict(list)
        for place, text in enumerate(statements):
            self._by_text[wording(text).text].append(place)
            for word in said_words(text):
                self._having[word].append(place)

    def saying(self, lesson: str) -> dict[int, Judgement]:
        """Return the statements that say a lesson, by their places; those in its very words alone if there are any."""
        if same := self._by_text.get(wording(lesson).text):
            return dict.fromkeys(same, EXACTLY)
        cosines = self._cosines(lesson)
        near = sorted(cosines, key=cosines.__getitem__, reverse=True)[:COMPARED]
        places = dict.fromkeys((*self._sharing(lesson)[:COMPARED], *near))
        judged = {place: self._judged(place, lesson, cosines.get(place)) for place in places}
        return {place: one for place, one in judged.items() if one.verdict == "yes"}

    def nearest(self, lesson: str, count: int) -> list[int]:
        """Return the statements nearest to a lesson, by meaning where it is known."""
        cosines = self._cosines(lesson)
        near = sorted(cosines, key=cosines.__getitem__, reverse=True) or self._sharing(lesson)
        return near[:count]

    def _judged(self, place: int, lesson: str, cosine: float | None) -> Judgement:
        return judge(self._statements[place], lesson, cosine=cosine, thresholds=self._similarity.thresholds)

    def _sharing(self, lesson: str) -> list[int]:
        """Return the statements that share words with a lesson; rare words weigh more."""
        weights: Counter[int] = Counter()
        for word in said_words(lesson):
            having = self._having.get(word, ())
            for place in having:
                weights[place] += 1_000_000 // len(having)
        return sorted(weights, key=lambda place: (-weights[place], place))

    def _cosines(self, lesson: str) -> dict[int, float]:
        own = _unit(self._similarity.vectors.get(lesson, ()))
        if not own:
            return {}
        places = range(len(self._statements)) if self._all else self._sharing(lesson)
        units = self._units
        return {
            place: 1 - dist(own, units[place]) ** 2 / 2 for place in places if len(units[place]) == len(own)
        }


def _unit(vector: Sequence[float]) -> tuple[float, ...]:
    length = hypot(*vector)
    return tuple(part / length for part in vector) if length else ()
