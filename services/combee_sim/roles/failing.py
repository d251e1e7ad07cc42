"""The stand-in's configured failures: in a reflection, and in a call that aggregates."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from combee_sim.chance import draw
from combee_sim.family.falsehoods import invented, opposite
from combee_sim.family.lessons import Item
from combee_sim.family.wordings import in_words
from combee_sim.modes import NO_MODES, NOTICED, WAYS, Modes, Way

T = TypeVar("T")
CORRELATED_LESSONS = 8
"""Number of recurring invented lessons, which differ with each seed."""
REWORDED = 0.2
"""Probability that an aggregator rewords a lesson that it passes on."""


@dataclass(frozen=True, slots=True)
class Failing:
    """The failures of one call: the active modes, and the causes of chance."""

    modes: Modes = NO_MODES
    causes: tuple[str | int, ...] = ()

    def reflected(self, lesson: str, seed: int) -> str:
        """Return a reflector's replacement for a lesson; an empty lesson stays empty."""
        modes, said = self.modes, lesson
        if not lesson:
            return lesson
        if self._happens(modes.correlated, "correlated"):
            which = int(draw("which falsehood", *self.causes) * CORRELATED_LESSONS)
            said = invented("correlated", seed, which)
        elif self._happens(modes.contradictions, "contradiction"):
            said = opposite(lesson) or lesson
        return said if modes.paraphrase is None else in_words(said, draw("wording", *self.causes))

    def statements(self, items: Sequence[Item]) -> Iterator[list[Item]]:
        """Yield the items of one lesson by statement: wordings not recognised as equal stay separate."""
        wordings: dict[str, list[Item]] = defaultdict(list)
        for item in items:
            wordings["" if self.modes.paraphrase is None else item.lesson].append(item)
        first, *others = sorted(wordings)
        apart = [wording for wording in others if not self._sees_repeat(wording)]
        together = [item for wording in wordings if wording not in apart for item in wordings[wording]]
        yield sorted(together, key=lambda item: item.lesson != first)
        for wording in apart:
            yield wordings[wording]

    def said(self, lesson: str, held: str | None) -> str:
        """Return a call's wording of a passed-on lesson; ``held``: an entry's wording of the same lesson."""
        if self.modes.paraphrase is None:
            return lesson
        if held is not None and self._sees_repeat(f"{held} / {lesson}"):
            return held
        if self._happens(REWORDED, "reworded", lesson):
            return in_words(lesson, draw("other words", lesson, *self.causes))
        return lesson

    def sees_entries(self, content: str, other: str) -> bool:
        """Return whether a call notices that two entries say the same."""
        return self.modes.paraphrase is None or self._sees_repeat(f"{content} / {other}")

    def sees_contradiction(self, about: str) -> bool:
        """Return whether a call notices that texts on a topic contradict each other."""
        return not self.modes.contradictions or self._happens(NOTICED, "noticed", about)

    def inventions(self) -> Iterator[str]:
        """Yield the lessons that a call invents."""
        count = int(self.modes.invented + draw("inventions", *self.causes))
        for n in range(count):
            lesson = invented("call", *self.causes, n)
            yield self.said(lesson, None)

    def overlooks(self, lesson: str, *, is_to_name: bool) -> Way:
        """Return how a call overlooks a lesson; ``is_to_name``: it is to account for every item."""
        way = self.modes.overload or ("named" if is_to_name else "silent")
        return self.one_of(WAYS, "overlooked", lesson) if way == "mixed" else way

    def one_of(self, choices: Sequence[T], *what: str) -> T:
        """Return one of some choices."""
        return choices[int(draw(*what, *self.causes) * len(choices))]

    def misjudges(self, *what: str, is_well: bool) -> bool:
        """Return whether a check call errs in one judgement; ``is_well``: the right one is that nothing is lost."""
        rate = self.modes.false_no if is_well else self.modes.false_yes
        return self._happens(rate, "misjudged", *what)

    def _sees_repeat(self, wording: str) -> bool:
        return self._happens(self.modes.paraphrase or 0.0, "merged", wording)

    def _happens(self, chance: float, *what: str) -> bool:
        return chance > 0 and draw(*what, *self.causes) < chance
