"""A flood of dead letters: one producer's fault, whose playbook then waits, or everybody's, which stops the service.

A record that cannot be read is its producer's fault, and nobody knows whose it is: all of them count under one
name. A record that can be read fails because the model's reply was of no use.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

UNREADABLE = ""
"""The name that records without a readable playbook count under."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The records of this playbook wait."""

    playbook: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The service stops: going on would dead-letter everything."""

    bad: int
    good: int


def judge(tallies: Mapping[str, Tally], limit: int, paused: Collection[str] = ()) -> Pause | Stop | None:
    """Return what a minute's dead letters call for; nothing below ``limit``, nor while most replies are of use.

    ``paused`` are the playbooks that wait already: each speaks against the service, not against the next one.
    """
    total = sum(tallies.values(), Tally())
    if total.bad < limit or total.failures < min(limit, LEAST_FAILURES):
        return None
    worst = max(sorted(tallies), key=lambda name: tallies[name].bad)
    read = {name: tally for name, tally in tallies.items() if name != UNREADABLE}
    if 2 * tallies[worst].bad > total.bad and _is_alone(worst, read, paused):
        return Pause(playbook=worst)
    everybody = sum(read.values(), Tally())
    return Stop(bad=everybody.bad, good=everybody.good) if everybody.bad > everybody.good else None


def _is_alone(worst: str, read: Mapping[str, Tally], paused: Collection[str]) -> bool:
    """Return whether the fault is one producer's: what it sends cannot be read, or no neighbour is worse off."""
    if worst == UNREADABLE:
        return True
    others = [tally for name, tally in read.items() if name != worst]
    neighbours = sum(others, Tally(bad=sum(name != UNREADABLE for name in paused)))
    well = neighbours.bad == 0 or neighbours.good > neighbours.bad
    return well and read[worst].bad > read[worst].good
