"""A flood of dead letters: which playbooks it pauses, and whether the service is at fault.

A record may be unusable by itself, which is its producer's fault. All unusable records count under one name, so that
they hold back each other and no usable record. Other records fail because the model's reply was unusable. That may be
the model's fault or the record's, and names prove nothing: anybody can invent a playbook, and texts for which no
model has a good reply. So before a service stops, it asks the model a question of its own.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

UNUSABLE = ""
"""Name under which unusable records count."""
MIN_FAILURES = 5
"""Minimum number of failed replies that prove something: one reply can cost many reflections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Results of one playbook within a minute."""

    failures: int = 0
    """Unusable records or replies."""
    bad: int = 0
    """Dead letters that result, or would result."""
    good: int = 0
    """Records handled successfully."""

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            failures=self.failures + other.failures, bad=self.bad + other.bad, good=self.good + other.good
        )

    @property
    def is_worse(self) -> bool:
        """Whether failures outnumber successes."""
        return self.bad > self.good

    def is_flood(self, limit: int) -> bool:
        """Return whether the dead letters exceed the limit per minute."""
        return self.bad >= limit and self.failures >= min(limit, MIN_FAILURES)


NOTHING = Tally()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The records of this playbook wait."""

    playbook: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Most replies are unusable; if the reply to the service's own question is as well, the service stops."""

    playbooks: tuple[str, ...]
    """Playbooks to pause otherwise: each is a flood by itself."""
    bad: int
    good: int


def judge(tallies: Mapping[str, Tally], limit: int, paused: Collection[str] = ()) -> Pause | Doubt | None:
    """Return the action for a minute's dead letters; None below ``limit`` or if most replies are usable.

    ``paused`` playbooks count as evidence against the service rather than against another playbook.
    """
    if tallies.get(UNUSABLE, NOTHING).bad >= limit:
        return Pause(playbook=UNUSABLE)
    asked = {name: tally for name, tally in tallies.items() if name != UNUSABLE}
    total = sum(asked.values(), NOTHING)
    if not total.is_flood(limit):
        return None
    worst = max(sorted(asked), key=lambda name: asked[name].bad)
    if 2 * asked[worst].bad > total.bad and _is_alone(worst, asked, paused):
        return Pause(playbook=worst)
    if not total.is_worse:
        return None
    floods = (name for name, tally in asked.items() if tally.is_worse and tally.is_flood(limit))
    return Doubt(playbooks=tuple(sorted(floods)), bad=total.bad, good=total.good)


def _is_alone(worst: str, asked: Mapping[str, Tally], paused: Collection[str]) -> bool:
    """Return whether only this playbook does so badly: then it is paused, and no question is needed."""
    others = [tally for name, tally in asked.items() if name != worst]
    neighbours = sum(others, Tally(bad=sum(name != UNUSABLE for name in paused)))
    well = neighbours.bad == 0 or neighbours.good > neighbours.bad
    return well and asked[worst].is_worse
