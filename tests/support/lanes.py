"""Which lane a test is in, by its folder, and what follows from that."""

from collections.abc import Collection, Iterable, Sequence
from functools import cache
from itertools import groupby, islice
from pathlib import Path

MARKED = frozenset({"kafka", "e2e", "faults", "deploy", "attacks", "extras"})
ASKED_FOR = ("faults", "deploy", "attacks", "extras")
"""Lanes that run only where they are named."""
WAITING = frozenset({"kafka", "e2e", "faults"})
"""Lanes whose tests wait for processes most of their time."""
BROKER_FIXTURE = "kafka"
BROKERS = ("embedded", "testcontainers", "external")


@cache
def lane_of(path: Path, tests: Path) -> str:
    return path.relative_to(tests).parts[0] if path.is_relative_to(tests) else ""


def marks(lane: str, fixtures: Collection[str]) -> frozenset[str]:
    needs_broker = frozenset({"kafka"}) if BROKER_FIXTURE in fixtures else frozenset()
    return (frozenset({lane}) & MARKED) | needs_broker


def refusal(lane: str, fixtures: Collection[str]) -> str | None:
    if lane == "unit" and BROKER_FIXTURE in fixtures:
        return "A unit test must not need a broker: move it to tests/kafka, or use combee.adapters.memory."
    return None


def is_shown(phase: str | None, outcome: str) -> bool:
    """Return whether a run tells of this part of a test where nobody asked for more."""
    return phase == "call" or outcome != "passed"


def wants(lane: str, arguments: Iterable[str], mark_expression: str, tests: Path) -> bool:
    named = any(
        Path(argument.partition("::")[0]).absolute().is_relative_to(tests / lane) for argument in arguments
    )
    return named or mark_expression.strip() == lane


def shared_out(files: Sequence[Path], tests: Path, processes: int) -> list[int]:
    """Return an order of tests, given as their files: places in the sequence.

    Each process of a run is given one piece of it, begins with its share of the files whose tests wait, and takes
    over from another's end when it is done: short tests, of which the last one keeps nobody waiting.
    """
    by_file = [list(places) for _, places in groupby(range(len(files)), key=lambda place: files[place])]
    waiting = [places for places in by_file if lane_of(files[places[0]], tests) in WAITING]
    others = iter([place for places in by_file if places not in waiting for place in places])
    order: list[int] = []
    for number in range(processes):
        share = [place for places in waiting[number::processes] for place in places]
        size = (len(files) - len(order)) // (processes - number)
        order += [*share, *islice(others, max(0, size - len(share)))]
    return order + list(others)
