"""Counting lessons: which of the latent conventions that the data hold does a playbook hold."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from combee.core.formats.ace_protocol import FORMULA_NAME
from combee.core.formats.intake import Sample
from combee.sim.family.conventions import read_convention
from combee.sim.family.family import latent, read_question
from combee.sim.family.knowledge import Knowledge
from combee.sim.family.lessons import key
from combee.sim.family.quantities import QUANTITIES
from combee_experiments.data.samples import Data, Kind


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

        A quantity's is held by its exact convention, a formula's or tag's by whatever text names it: what a
        real model says about it is not checked.
        """
        if self.kind == "family":
            return frozenset(name for text in texts for name in _conventions(text)) & self.names
        # Some tags are plain words: "depreciation" in a sentence is not the tag.
        exact = self.kind == "finer"
        named = _named(tuple(sorted(self.names)), re.NOFLAG if exact else re.IGNORECASE)
        found = frozenset(one.group() for text in texts for one in named.finditer(text))
        return found if exact else frozenset(name.casefold() for name in found)

    def known(self, samples: Sequence[Sample], texts: Iterable[str]) -> float:
        """Return the share of exam places whose lesson the texts hold: what a simulated agent gets right."""
        held = self.kept(texts)
        shares = [self.share(sample, held) for sample in samples]
        return sum(shares) / len(shares) if shares else 0.0

    def share(self, sample: Sample, held: frozenset[str]) -> float:
        """Return the share of one sample's places whose lesson is among those held."""
        needed = NEEDED[self.kind](sample, self.knowledge)
        return sum(name in held for name in needed) / len(needed) if needed else 0.0


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
    found = (read_convention(line) for line in text.splitlines())
    return tuple(one.quantity for one in found if one and key(one.sentence()) == _latent().get(one.quantity))


@cache
def _latent() -> Mapping[str, str]:
    """Return the key of each quantity's one right convention."""
    return {quantity.name: key(latent(quantity).sentence()) for quantity in QUANTITIES}


@lru_cache(maxsize=16)
def _named(names: tuple[str, ...], case: re.RegexFlag) -> re.Pattern[str]:
    """Return a pattern of names as whole words; of names that begin alike the longest is found."""
    longest = sorted(names, key=len, reverse=True)
    either = "|".join(map(re.escape, longest)) or r"(?!)"
    return re.compile(rf"(?<!\w)(?:{either})(?!\w)", case)
