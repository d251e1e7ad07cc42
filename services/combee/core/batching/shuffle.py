"""Augmented shuffling (paper §3.2): p copies of every reflection, dealt into different groups."""

from collections.abc import Iterable
from math import isqrt
from random import Random

from combee_schemas.plan import SmallBatches

COPIES_FROM = 4
"""Fewer reflections than this make one group without copies (the authors' released code)."""


def group_count(reflections: int, asked: int = 0) -> int:
    """Return k: as requested, at most one group per reflection, otherwise the paper's ⌊√n⌋; 1 when n < 4."""
    if reflections < COPIES_FROM:
        return 1
    return min(asked, reflections) if asked else isqrt(reflections)


def effective_copies(
    reflections: int, copies: int, groups: int, small_batches: SmallBatches = "fewer-copies"
) -> int:
    """Return how many copies are made: none extra for n < 4, and never two copies in one group.

    In new plans they are fewer than groups: groups that all hold everything spread nothing.
    """
    most = max(1, groups - 1) if small_batches == "fewer-copies" else groups
    return min(copies, most) if reflections >= COPIES_FROM else 1


def deal(reflections: int, copies: int, groups: int, seed: int) -> tuple[tuple[int, ...], ...]:
    """Return, per group, the indices 0…n-1 of the reflections whose copies it gets.

    Each reflection goes to the ``copies`` least loaded groups, ties broken by chance, in shuffled order.
    Hence groups differ by at most one in size and, as ``copies`` ≤ ``groups``, no group sees one twice.
    The same arguments give the same groups on every machine.
    """
    if not 1 <= copies <= groups:
        raise ValueError(f"copies must be between 1 and groups ({groups}), not {copies}")
    rng = Random(seed)  # noqa: S311 - reproducible, not secret
    order = _shuffled(range(reflections), rng)
    dealt: list[list[int]] = [[] for _ in range(groups)]
    low, high = _shuffled(range(groups), rng), list[int]()  # loads m and m + 1: balance is kept at each step
    for index in order:
        chosen = [low.pop() for _ in range(min(copies, len(low)))]
        rest = [] if len(chosen) == copies else _shuffled(high, rng)
        raised = [rest.pop() for _ in range(copies - len(chosen))]
        if raised or not low:
            low, high = _shuffled(rest + chosen if raised else high + chosen, rng), raised
        else:
            high += chosen
        for group in chosen + raised:
            dealt[group].append(index)
    return tuple(tuple(group) for group in dealt)


def _shuffled(items: Iterable[int], rng: Random) -> list[int]:
    mixed = list(items)
    rng.shuffle(mixed)
    return mixed
