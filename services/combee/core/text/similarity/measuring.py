"""Error rates of the rule of similarity on labelled pairs, and the threshold for one embedding model; pure."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, get_args

from combee.core.text.similarity.embeddings import UNMEASURED, Thresholds
from combee.core.text.similarity.saying import judge, may_be_told_by_meaning

Label = Literal["paraphrase", "neighbour", "figure", "negated"]
"""paraphrase: the same lesson; neighbour: another one about the same subject; figure: the lesson with another figure;
negated: with a negation or a condition turned."""
LABELS: tuple[Label, ...] = get_args(Label)
MAX_WRONG = 0.01
"""Maximum share of the pairs of each wrong label that a proposed threshold takes for one lesson."""
USEFUL = 0.05
"""Minimum share of paraphrases that a model with a threshold must recognise."""
_FIGURE = re.compile(r"\{([^{}]+)\}")
_STEP = 0.005
"""Distance of a proposed threshold from the highest cosine that it must not count."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts, and what they are to each other."""

    label: Label
    text: str
    lesson: str

    @property
    def is_one_lesson(self) -> bool:
        """Whether the text says the lesson."""
        return self.label == "paraphrase"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Number of pairs of one label by verdict."""

    label: Label
    yes: int = 0
    no: int = 0
    ask: int = 0

    @property
    def pairs(self) -> int:
        """Number of pairs of the label."""
        return self.yes + self.no + self.ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The threshold for one embedding model."""

    meaning: float
    recognised: float
    """Share of the paraphrases that count as one lesson with it."""
    wrong: float
    """Share of all other pairs that do."""

    @property
    def is_useful(self) -> bool:
        """Whether embeddings of this model save questions."""
        return self.recognised >= USEFUL


def pairs_of(lessons: Sequence[Mapping[str, Any]]) -> Iterator[Pair]:
    """Yield the pairs of lessons with ``text``, ``same``, ``near``, ``turned`` and perhaps ``other`` figures."""
    for lesson in lessons:
        text = _plain(lesson["text"])
        yield from (Pair("paraphrase", _plain(same), text) for same in lesson["same"])
        yield Pair("neighbour", lesson["near"], text)
        yield Pair("negated", lesson["turned"], text)
        for figure in lesson.get("other", ()):
            for frame in (lesson["text"], lesson["same"][0]):
                yield Pair("figure", _FIGURE.sub(figure, frame), text)


def verdicts(
    pairs: Sequence[Pair],
    cosine: Callable[[str, str], float] | None = None,
    thresholds: Thresholds = UNMEASURED,
) -> tuple[Verdicts, ...]:
    """Return the verdicts for each label; without ``cosine``, by words alone."""
    counts = {label: {"yes": 0, "no": 0, "ask": 0} for label in LABELS}
    for pair in pairs:
        near = cosine(pair.text, pair.lesson) if cosine else None
        judgement = judge(pair.text, pair.lesson, cosine=near, thresholds=thresholds)
        counts[pair.label][judgement.verdict] += 1
    return tuple(Verdicts(label=label, **counts[label]) for label in LABELS)


def proposed(pairs: Sequence[Pair], cosine: Callable[[str, str], float]) -> Proposal:
    """Return the lowest threshold that few pairs of each wrong label reach, and no two lessons.

    Neighbours and lessons count whether or not the rule leaves them to embeddings: a batch has many more of them.
    """
    told = [pair for pair in pairs if may_be_told_by_meaning(pair.text, pair.lesson)]
    lessons = combinations(dict.fromkeys(pair.lesson for pair in pairs), 2)
    limits = [max((cosine(*lesson) for lesson in lessons), default=0.0)]
    for label in LABELS[1:]:
        labelled = [pair for pair in pairs if pair.label == label]
        near = sorted(
            (
                cosine(pair.text, pair.lesson)
                for pair in (labelled if label == "neighbour" else told)
                if pair.label == label
            ),
            reverse=True,
        )
        limits += near[int(MAX_WRONG * len(labelled)) :][:1]
    meaning = min(1.0, round(max(limits) + _STEP, 3))
    counted = [pair for pair in told if cosine(pair.text, pair.lesson) >= meaning]
    right = sum(pair.is_one_lesson for pair in counted)
    same = sum(pair.is_one_lesson for pair in pairs)
    return Proposal(
        meaning=meaning,
        recognised=right / max(1, same),
        wrong=(len(counted) - right) / max(1, len(pairs) - same),
    )


def _plain(text: str) -> str:
    return _FIGURE.sub(r"\1", text)
