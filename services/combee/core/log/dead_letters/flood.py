"""A flood of dead letters: what it holds back, and whether the service is at fault.

A record can be of no use by itself, whatever a model says: its producer's fault. All of these count under one name,
so they hold back each other and no record that is good. Other records fail because the model's reply was of no use.
That may be the model's fault or the record's, and names prove nothing: anybody can invent a playbook, and texts to
which no model has a good reply. So before a service stops, it asks the model about something of its own.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

UNUSABLE = ""
"""The name that records which are of no use by themselves count under."""
LEAST_FAILURES = 5
"""One reply can cost many reflections; fewer replies than this prove nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What a minute brought one playbook."""

    failures: int = 0
    """Records or replies of no use."""
    bad: int = 0
    """Dead letters that come of them, or would."""
    good: int = 0
    """Records that came to something."""

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            failures=self.failures + other.failures, bad=self.bad + other.bad, good=self.good + other.good
        )

    @property
    def is_worse(self) -> bool:
        """Whether more came to nothing than to something."""
        return self.bad > self.good

    def is_flood(self, limit: int) -> bool:
        """Return whether these are more than a minute may bring."""
        return self.bad >= limit and self.failures >= min(limit, LEAST_FAILURES)


NOTHING = Tally()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The records of this playbook wait."""

    playbook: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Most replies are of no use: if one to a question of our own is, too, the service stops."""

    playbooks: tuple[str, ...]
    """Else these wait: each is a flood by itself."""
    bad: int
    good: int


def judge(tallies: Mapping[str, Tally], limit: int, paused: Collection[str] = ()) -> Pause | Doubt | None:
    """Return what a minute's dead letters call for; nothing below ``limit``, nor while most replies are of use.

    ``paused`` are the playbooks that wait already: each speaks against the service, not against the next one.
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
    """Return whether no neighbour is as badly off: then one playbook waits, and nothing needs to be asked."""
    others = [tally for name, tally in asked.items() if name != worst]
    neighbours = sum(others, Tally(bad=sum(name != UNUSABLE for name in paused)))
    well = neighbours.bad == 0 or neighbours.good > neighbours.bad
    return well and asked[worst].is_worse
