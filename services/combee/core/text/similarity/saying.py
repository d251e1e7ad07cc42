"""Whether a text says a lesson: yes, no, or a model has to be asked; pure.

A wrong yes loses a lesson, a missed one costs a line in a check call. So yes needs the same words, or nearly the same
meaning by embeddings with the same figures, negations and exceptions on both sides. If each side has a
figure that the other lacks, the answer is no, though embeddings call the two alike.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import chain
from math import dist
from typing import Literal

from combee.core.text.figures import conflicting, lacking
from combee.core.text.similarity.embeddings import (
    UNMEASURED,
    Thresholds,
    Vector,
    cosine_of,
    distance_at,
    unit,
)
from combee.core.text.similarity.lessons import Index, is_padded, same_lesson
from combee.core.text.similarity.overlap import said_words
from combee.core.text.similarity.wording import MARKS, NEGATIONS, done, is_plain, wording

Verdict = Literal["yes", "no", "ask"]
By = Literal["words", "meaning"]

ONE_FRAME = 0.6
"""Share of common words from which two texts have one frame, in which one other word, or another order, can turn the
lesson: embeddings hardly tell "before" from "after". Nearly all labelled negated pairs have more, and 4 % of the
paraphrases."""
HEAD = 256
"""Dimensions that are compared first: 2,000 lessons with 500 statements take 3 s so, and 13 s with all 1,536."""
CONFLICTS = 8
"""Number of contradicting statements nearer to a lesson than those to be asked about that are looked through."""
_TURNS = NEGATIONS | {"avoid", "except", "nobody", "nothing", "nowhere", "only", "unless"}
"""Words that turn a lesson; other words of conditions, such as "if" and "until", have too many synonyms."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a text says a lesson, how near it is (0 … 1), and by what that is known."""

    verdict: Verdict
    score: float
    by: By


def judge(
    text: str, lesson: str, *, cosine: float | None = None, thresholds: Thresholds = UNMEASURED
) -> Judgement:
    """Return whether ``text`` says ``lesson``; ``cosine`` is that of their embeddings, if there are any."""
    by: By = "words" if cosine is None else "meaning"
    score = _share(text, lesson) if cosine is None else cosine
    if _has_other_figures(text, lesson):
        return Judgement("no", score, by)
    if says(text, lesson):
        return Judgement("yes", 1.0, "words")
    if cosine is not None and cosine >= thresholds.meaning and may_be_told_by_meaning(text, lesson):
        return Judgement("yes", cosine, "meaning")
    return Judgement("ask", score, by)


def may_be_told_by_meaning(text: str, lesson: str) -> bool:
    """Return whether embeddings can be believed about two texts.

    They cannot where one side has a figure, a negation or an exception that the other lacks, and where both have
    nearly the same words but not all, or in another order: such a pair is near whatever it says.
    """
    if not _has_the_same_exact_words(text, lesson):
        return False
    words, others = _stems(text), _stems(lesson)
    fewer = min(len(set(words)), len(set(others)))
    in_one_frame = len({*words} & {*others}) >= ONE_FRAME * fewer
    return not in_one_frame or words == others


class Statements:
    """Statements that may say lessons, indexed so that many lessons can be looked up."""

    def __init__(
        self,
        texts: Sequence[str],
        *,
        vectors: Mapping[str, Vector] | None = None,
        thresholds: Thresholds = UNMEASURED,
    ) -> None:
        self._texts = tuple(texts)
        self._vectors = vectors or {}
        self._thresholds = thresholds
        self._same = Index()
        self._having: dict[str, list[int]] = defaultdict(list)
        """Word → the statements with it."""
        self._units: dict[int, tuple[float, ...]] = {}
        for place, text in enumerate(self._texts):
            self._same.put(str(place), text)
            for word in said_words(text):
                self._having[word].append(place)
            if own := unit(self._vectors.get(text, ())):
                self._units[place] = own
        self._heads = {place: own[:HEAD] for place, own in self._units.items()}

    def saying(self, lesson: str) -> dict[int, Judgement]:
        """Return the statements that say a lesson, by their places."""
        own = unit(self._vectors.get(lesson, ()))
        farthest = distance_at(self._thresholds.meaning)
        heads = self._head_distances(own)
        cosines = {
            place: cosine_of(own, self._units[place])
            for place, distance in heads.items()
            if distance <= farthest
        }
        worded = map(int, self._same.saying(lesson))
        judgements = {
            place: self._judged(place, lesson, cosines.get(place)) for place in sorted({*worded, *cosines})
        }
        return {place: judgement for place, judgement in judgements.items() if judgement.verdict == "yes"}

    def to_ask_about(self, lesson: str, most: int) -> list[int]:
        """Return the places of at most ``most`` statements near a lesson that may say it, the nearest first.

        What contradicts the lesson is left out, and without vectors what has no word in common with it.
        """
        own = unit(self._vectors.get(lesson, ()))
        heads = self._head_distances(own)
        if heads:
            near = nsmallest(CONFLICTS + most, heads, key=lambda place: (heads[place], place))
        else:
            counts = Counter(
                chain.from_iterable(self._having.get(word, ()) for word in sorted(said_words(lesson)))
            )
            near = nsmallest(CONFLICTS + most, counts, key=lambda place: (-counts[place], place))
        judgements = (
            (place, self._judged(place, lesson, cosine_of(own, self._units[place]) if heads else None))
            for place in near
        )
        asked = [(place, judgement) for place, judgement in judgements if judgement.verdict == "ask"]
        nearest = nsmallest(most, asked, key=lambda named: (-named[1].score, named[0]))
        return [place for place, _ in nearest]

    def _judged(self, place: int, lesson: str, cosine: float | None) -> Judgement:
        return judge(self._texts[place], lesson, cosine=cosine, thresholds=self._thresholds)

    def _head_distances(self, own: tuple[float, ...]) -> dict[int, float]:
        """Return the distances of the vectors' heads, which those of the whole vectors cannot fall below."""
        head, size = own[:HEAD], len(own)
        return {
            place: dist(head, other)
            for place, other in self._heads.items()
            if len(self._units[place]) == size
        }


def says(text: str, lesson: str) -> bool:
    """Return whether a text says a lesson in its words, and no others.

    Others could be advice that nobody gave, which must not ride on the support of the lesson.
    """
    return same_lesson(text, lesson) and not is_padded(text, lesson)


def _has_other_figures(text: str, lesson: str) -> bool:
    """Return whether figures of one unit differ, or each text has one that the other lacks, however it is counted."""
    lacks = {figure.value for figure in lacking(text, lesson)}
    adds = {figure.value for figure in lacking(lesson, text)}
    # One of something need not be counted.
    return conflicting(text, lesson) or bool(lacks - adds - {"1"} and adds - lacks - {"1"})


def _has_the_same_exact_words(text: str, lesson: str) -> bool:
    """Return whether two texts have the same figures, and the same words that turn a lesson."""
    return _turns(text) == _turns(lesson) and not lacking(text, lesson) and not lacking(lesson, text)


def _turns(text: str) -> Sequence[str]:
    return sorted(word for word in wording(text).words if word in _TURNS)


def _share(text: str, lesson: str) -> float:
    """Return the share of a lesson's words that a text has, words of grammar apart: 0 … 1."""
    wanted = said_words(lesson)
    return len(wanted & said_words(text)) / len(wanted) if wanted else 0.0


def _stems(text: str) -> Sequence[str]:
    """Return the stems of all words of a text, grammar and question marks included, in their order."""
    return [
        done(word) if is_plain(word) else word for word in wording(text).words if word not in MARKS - {"?"}
    ]
