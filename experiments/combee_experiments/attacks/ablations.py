"""What each protection gains: ``python -m combee_experiments.attacks.ablations [SEEDS]``.

Each is taken out where it should matter, and the worst run is shown with and without it.
"""

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from unittest.mock import patch

import structlog

from combee.core.playbook import budget, trust
from combee.shuffle.rules import BatchRules
from combee_experiments.attacks.producers import (
    CROWD,
    EVICTION,
    REMOVAL,
    REPUTATION,
    REWORDING,
)
from combee_experiments.attacks.protections import SHORT, Arm
from combee_experiments.attacks.run import attacked
from combee_experiments.running.cells import Numbers
from combee_experiments.running.setup import parse_seeds
from combee_experiments.running.virtual_time import run_virtual

CROWD_SENT = 100
"""Reflections that an attacker sends in a round where its part is not bounded to 30 %; batches queue then."""
TEAM_ONE, SQUATTED = Arm(posture="team"), Arm(posture="team", room=SHORT, begins=0)
PUBLIC_ONE, PUBLIC_THREE = Arm(posture="public"), Arm(posture="public", crew="three")
CROWDED = replace(TEAM_ONE, sent=CROWD_SENT, begins=0, call_s=10.0)
COLUMNS = (
    "protection",
    "arm",
    "attack",
    "harmful shown",
    "of the text",
    "lessons lost",
    "destroyed",
    "delay",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """A protection, how it is taken out, and where it should matter."""

    name: str
    out: tuple[tuple[object, str, object], ...]
    arms: tuple[Arm, ...]
    attacks: tuple[str, ...]

    def taken_out(self) -> AbstractContextManager[object]:
        """Take the protection out while the context is open."""
        stack = ExitStack()
        for where, name, instead in self.out:
            stack.enter_context(patch.object(where, name, instead))
        return stack


ABLATIONS = (
    Ablation(
        name="a source's part of the room",
        out=((trust, "parts", lambda _: budget.UNBOUNDED),),
        arms=(SQUATTED,),
        attacks=("stuffing",),
    ),
    Ablation(
        name="nobody destroys alone",
        out=((trust, "NOT_ALONE", 1),),
        arms=(TEAM_ONE,),
        attacks=("contradictions", REWORDING, REMOVAL, EVICTION),
    ),
    Ablation(
        name="one word of a source about an entry in a batch",
        out=((trust.Screen, "heard", lambda _, seen: tuple(seen)),),
        arms=(TEAM_ONE, PUBLIC_THREE),
        attacks=(REMOVAL,),
    ),
    Ablation(
        name="what only a check call witnesses is no support",
        out=((trust, "unsure_of", lambda *_: frozenset()),),
        arms=(PUBLIC_ONE, PUBLIC_THREE),
        attacks=(REPUTATION,),
    ),
    Ablation(
        name="a source's share of a batch",
        out=((BatchRules, "share", lambda *_: None),),
        arms=(CROWDED,),
        attacks=(CROWD,),
    ),
)


def rows(ablation: Ablation, seeds: Sequence[int]) -> Iterator[tuple[str, ...]]:
    """Yield a line for each arm and attack: each figure of the worst run with and without the protection."""
    for arm in ablation.arms:
        for attack in ablation.attacks:
            held = [run_virtual(attacked(seed, attack, arm)) for seed in seeds]
            with ablation.taken_out():
                bare = [run_virtual(attacked(seed, attack, arm)) for seed in seeds]
            name = f"{arm.name}, {arm.sent} a round" if arm.sent == CROWD_SENT else arm.name
            yield (
                ablation.name,
                name,
                attack,
                *map(" → ".join, zip(_figures(held), _figures(bare), strict=True)),
            )


def _figures(runs: Sequence[Numbers]) -> tuple[str, ...]:
    worst: Mapping[str, float] = {name: max(run[name] for run in runs) for name in runs[0]}
    lost = max(20 - run["lessons"] for run in runs)
    return (
        f"{worst['harmful']:g}",
        f"{worst['text']:.0%}",
        f"{lost:g}",
        f"{worst['destroyed']:g}",
        f"{worst['delay']:.1f}",
    )


def main() -> None:
    """Print the table, a line as soon as it is measured."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    seeds = parse_seeds(sys.argv[1] if sys.argv[1:] else "1")
    for ablation in ABLATIONS:
        if sys.argv[2:] and sys.argv[2] not in ablation.name:
            continue
        for row in rows(ablation, seeds):
            sys.stdout.write(" | ".join(row) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
