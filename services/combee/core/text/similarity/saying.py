"""Stub: whether a text says a lesson."""

from dataclasses import dataclass
from typing import Literal

from combee.core.text.similarity.lessons import same_lesson
from combee.core.text.similarity.overlap import said_words

By = Literal["words", "meaning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """When two texts are one lesson."""

    meaning: float = 0.97


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Whether a text says a lesson."""

    verdict: Literal["yes", "no", "ask"]
    score: float
    by: By


def judge(
    text: str, lesson: str, *, cosine: float | None = None, thresholds: Thresholds = Thresholds()
) -> Judgement:
    """Return whether a text says a lesson."""
    from combee.core.text.figures import conflicting, lacking

    if same_lesson(text, lesson):
        return Judgement(verdict="yes", score=1.0, by="words")
    if conflicting(text, lesson):
        return Judgement(verdict="no", score=0.0, by="words")
    if cosine is not None and cosine >= thresholds.meaning and not lacking(text, lesson):
        return Judgement(verdict="yes", score=cosine, by="meaning")
    shared = said_words(text) & said_words(lesson)
    return Judgement(verdict="ask", score=len(shared) / max(1, len(said_words(lesson))), by="words")
