"""Counting lessons: which of the latent conventions that the data hold does a playbook hold."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb

from combee.core.formats.ace_protocol import FORMULA_NAME
from combee.core.formats.intake import Sample
from combee_experiments.data.samples import Data, Kind
from combee_sim.family.conventions import read_convention
from combee_sim.family.falsehoods import is_invented, is_opposite
from combee_sim.family.family import read_question
from combee_sim.family.knowledge import Knowledge
from combee_sim.family.lessons import key, subject

BESIDE = (
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
    knowledge: Knowledge
    """Which formula a question is about, where the question does not say it."""

    def kept(self, texts: Iterable[str]) -> frozenset[str]:
        """Return the lessons that a playbook's texts hold.

        A quantity's is held by its exact convention in any wording, a formula's or tag's by whatever text names it:
        what a real model says about it is not checked. Of what the stand-in says, only what is right is counted, and
        a formula that another one's lesson mentions is not.
        """
        if self.kind == "family":
            return frozenset(name for text in texts for name in _conventions(text)) & self.names
        right = (text for text in texts if not is_opposite(text))
        # Some tags are plain words: "depreciation" in a sentence is not the tag.
        exact = self.kind == "finer"
        named = _named(tuple(sorted(self.names)), re.NOFLAG if exact else re.IGNORECASE)
        if exact:
            return frozenset(name.group() for text in right for name in named.finditer(text))
        return frozenset(name for text in right for name in self._about(text, named))

    def _about(self, text: str, named: re.Pattern[str]) -> Iterator[str]:
        about = subject(text)
        if about in self.names:
            yield about
        else:
            yield from (name.group().casefold() for name in named.finditer(text))

    def numbers(self, texts: Sequence[str]) -> dict[str, float]:
        """Return how many lessons a playbook's texts hold, and in what company."""
        kept = self.kept(texts)
        holding = sum(bool(self.kept([text])) for text in texts)
        return {
            "lessons": len(kept),
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


def lessons_of(data: Data) -> Lessons:
    """Return the lessons that the training samples can teach."""
    needed = NEEDED[data.kind]
    names = frozenset(name for sample in data.train for name in needed(sample, data.knowledge))
    return Lessons(kind=data.kind, names=names, knowledge=data.knowledge)


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


def _conventions(text: str) -> tuple[str, ...]:
    """Return the quantities whose right convention stands in a text of one or more lines."""
    right = (line for line in text.splitlines() if not is_opposite(line))
    return tuple(convention.quantity for line in right if (convention := read_convention(line)))


@lru_cache(maxsize=16)
def _named(names: tuple[str, ...], case: re.RegexFlag) -> re.Pattern[str]:
    """Return a pattern of names as whole words; of names that begin alike the longest is found."""
    longest = sorted(names, key=len, reverse=True)
    either = "|".join(map(re.escape, longest)) or r"(?!)"
    return re.compile(rf"(?<!\w)(?:{either})(?!\w)", case)
