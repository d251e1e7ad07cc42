"""Counting lessons: which of the lessons that the data can teach does a playbook say."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb

from combee.core.formats.ace_protocol import FORMULA_NAME
from combee.core.formats.intake import Sample
from combee_experiments.data.samples import Data, Kind
from combee_sim.family.falsehoods import is_invented, is_opposite
from combee_sim.family.family import read_question
from combee_sim.family.insights import needed
from combee_sim.family.knowledge import Knowledge
from combee_sim.family.lessons import key, subject, text_of
from combee_sim.family.wordings import plain

BESIDE = (
    ("named", "named", 1),
    ("wordings per lesson", "wordings_per_lesson", 2),
    ("invented", "invented", 0),
    ("wrong", "wrong", 0),
    ("contradicting pairs", "contradicted", 1),
    ("accuracy", "accuracy", 2),
)
"""Parts of a playbook other than kept lessons: the tables' name, the measure, and its decimals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lessons:
    """The lessons of one set of data; a lesson is named by its quantity, formula or tag."""

    kind: Kind
    names: frozenset[str]
    """Every lesson that the training samples can teach; empty where lessons cannot be counted."""
    meanings: Mapping[str, str]
    """Each lesson in plain words, without case and punctuation → its name."""
    knowledge: Knowledge
    """Which formula a question is about, where the question does not say it."""
    by_name: bool = False
    """Whether a text that names a lesson counts as the lesson: a real model's wordings are not known."""

    def kept(self, texts: Iterable[str]) -> frozenset[str]:
        """Return the lessons that the texts, or lines of them, are, in any of the stand-in's wordings.

        A text without a lesson's figures, conditions or negations, or with others, is not that lesson.
        """
        if self.by_name:
            return self.named(texts)
        lines = (line for text in texts for line in text.splitlines())
        return frozenset(name for line in lines if (name := self.meanings.get(text_of(plain(line)))))

    def named(self, texts: Iterable[str]) -> frozenset[str]:
        """Return the lessons whose quantity, formula or tag the texts name, whatever they say about it."""
        # Some tags are plain words: "depreciation" in a sentence is not the tag.
        if self.kind == "finer":
            pattern = _named(tuple(sorted(self.names)), re.NOFLAG)
            return frozenset(name.group() for text in texts for name in pattern.finditer(text))
        pattern = _named(tuple(sorted(self.names)), re.IGNORECASE)
        return frozenset(name.group().casefold() for text in texts for name in pattern.finditer(text))

    def numbers(self, texts: Sequence[str]) -> dict[str, float]:
        """Return how many lessons a playbook's texts hold, and in what company."""
        kept = self.kept(texts)
        holding = sum(bool(self.kept([text])) for text in texts)
        return {
            "lessons": len(kept),
            "named": len(self.named(texts)),
            "wordings_per_lesson": holding / len(kept) if kept else 0.0,
            "invented": sum(map(is_invented, texts)),
            "wrong": sum(map(is_opposite, texts)),
            "contradicted": contradicted(texts),
        }

    def known(self, samples: Sequence[Sample], texts: Iterable[str]) -> float:
        """Return the share of exam places whose lesson the texts hold: what a simulated agent gets right."""
        held = self.kept(texts)
        shares = [self.share(sample, held) for sample in samples]
        return sum(shares) / len(shares) if shares else 0.0

    def share(self, sample: Sample, held: frozenset[str]) -> float:
        """Return the share of one sample's places whose lesson is among those held."""
        needed = NEEDED[self.kind](sample, self.knowledge)
        return sum(name in held for name in needed) / len(needed) if needed else 0.0


def contradicted(texts: Iterable[str]) -> int:
    """Return how many pairs of lessons contradict each other; one lesson in two wordings counts once."""
    meanings: dict[str, set[str]] = defaultdict(set)
    for text in texts:
        if about := subject(text):
            meanings[about].add(key(text))
    return sum(comb(len(said), 2) for said in meanings.values())


def lessons_of(data: Data, *, by_name: bool = False) -> Lessons:
    """Return the lessons that the training samples can teach; ``by_name`` if a real model writes the texts."""
    places = [place for sample in data.train for place in zip(*_places(data, sample), strict=True)]
    return Lessons(
        kind=data.kind,
        names=frozenset(name for name, _ in places),
        meanings={text_of(lesson): name for name, lesson in places if lesson},
        knowledge=data.knowledge,
        by_name=by_name,
    )


def _places(data: Data, sample: Sample) -> tuple[Sequence[str], Sequence[str]]:
    """Return the names of the lessons that a sample's answer needs, and the lessons; empty where it says none."""
    names = NEEDED[data.kind](sample, data.knowledge)
    said = needed(data.knowledge.statement(sample.question), sample.target) if names else ()
    return names, said if len(said) == len(names) else [""] * len(names)


def _quantity(sample: Sample, _: Knowledge) -> tuple[str, ...]:
    asked = read_question(sample.question)
    return (asked.quantity,) if asked else ()


def _formula(sample: Sample, knowledge: Knowledge) -> tuple[str, ...]:
    found = FORMULA_NAME.search(knowledge.statement(sample.question))
    return (found["name"].strip().casefold(),) if found else ()


def _tags(sample: Sample, _: Knowledge) -> tuple[str, ...]:
    return tuple(tag.strip() for tag in sample.target.split(",") if tag.strip())


NEEDED: Mapping[Kind, Callable[[Sample, Knowledge], tuple[str, ...]]] = {
    "family": _quantity,
    "formula": _formula,
    "finer": _tags,
    "text": lambda _, __: (),
}
"""Kind of data → the lessons a sample's answer needs, one per place that is scored."""


@lru_cache(maxsize=16)
def _named(names: tuple[str, ...], case: re.RegexFlag) -> re.Pattern[str]:
    """Return a pattern of names as whole words; of names that begin alike the longest is found."""
    longest = sorted(names, key=len, reverse=True)
    either = "|".join(map(re.escape, longest)) or r"(?!)"
    return re.compile(rf"(?<!\w)(?:{either})(?!\w)", case)
