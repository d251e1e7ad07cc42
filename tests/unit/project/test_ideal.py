"""The yardstick of the benchmarks: a bound that no schedule undercuts, and the greedy schedule."""

import heapq
from collections.abc import Sequence
from random import Random
from zlib import crc32

import pytest
from benchmarks.ideal import ideal, least_s
from hypothesis import given
from hypothesis import strategies as st

from combee.core.batching import plan, tree
from combee.core.batching.limits import PRODUCT
from combee_schemas.batch import Batch, Member
from combee_schemas.reflection import Reflection
from support.rows import each_row

Levels = Sequence[Sequence[float]]


def scheduled_s(levels: Levels, slots: int, chance: Random) -> float:
    """Return how long a tree takes when of the calls that may begin a random one does; some slots rest a while."""
    widths = tuple(map(len, levels))
    missing = {
        (level, n): len(tree.child_indices(widths, level, n)) if level else 0
        for level, width in enumerate(widths)
        for n in range(width)
    }
    ready = [call for call, left in missing.items() if not left]
    running, now, free = list[tuple[float, int, int]](), 0.0, slots
    while ready or running:
        while ready and free and (not running or chance.random() < 0.9):
            level, n = ready.pop(chance.randrange(len(ready)))
            heapq.heappush(running, (now + levels[level][n], level, n))
            free -= 1
        now, level, n = heapq.heappop(running)
        free += 1
        if level + 1 < len(widths):
            parent = level + 1, tree.parent_index(widths, level, n)
            missing[parent] -= 1
            if not missing[parent]:
                ready.append(parent)
    return now


def longest_path_s(levels: Levels) -> float:
    widths, below = tuple(map(len, levels)), list[float]()
    for level, calls in enumerate(levels):
        ends = [
            max((below[n] for n in tree.child_indices(widths, level, n)), default=0.0) if level else 0.0
            for n in range(len(calls))
        ]
        below = [end + call for end, call in zip(ends, calls, strict=True)]
    return below[0]


@st.composite
def trees(draw: st.DrawFn) -> Levels:
    widths = [draw(st.integers(1, 24))]
    while widths[-1] > 1:
        widths.append(draw(st.integers(1, widths[-1] - 1)))
    lengths = st.floats(0.0, 10.0, allow_nan=False)
    return [draw(st.lists(lengths, min_size=width, max_size=width)) for width in widths]


@given(trees(), st.integers(1, 12), st.integers(0, 2**32))
def test_no_schedule_is_shorter_than_the_least(levels: Levels, slots: int, seed: int) -> None:
    least = least_s(longest_path_s(levels), levels, slots)

    assert least <= scheduled_s(levels, slots, Random(seed)) + 1e-9


class Lengths(dict[str, float]):
    """A length for each prompt, by its hash."""

    def __missing__(self, prompt_hash: str) -> float:
        return 0.2 + crc32(prompt_hash.encode()) % 1000 / 1000


def batch_of(count: int) -> tuple[Batch, list[Reflection]]:
    reflections = [
        Reflection(reflection_id=f"r{n}", playbook="a/b", key_insight=f"Metric {n} has {n % 4} decimals.")
        for n in range(count)
    ]
    members = [
        Member(offset=n, reflection_id=reflection.reflection_id) for n, reflection in enumerate(reflections)
    ]
    batch = plan.plan_batch(
        "a/b",
        1,
        members,
        [200] * count,
        settings=PRODUCT.model_copy(update={"fan_in": 3}),
        base=plan.Base(version=0, sequence=0),
        reason="size",
        batch_size=count,
        through_offset=count - 1,
    )
    return batch, reflections


@each_row("slots", [1, 3, 100])
def test_the_greedy_schedule_of_a_batch_is_no_shorter_than_its_least(slots: int) -> None:
    batch, reflections = batch_of(40)
    assert len(batch.plan.widths) == 3

    best = ideal(batch, reflections, Lengths(), slots)

    assert best.least_s <= best.greedy_s + 1e-9
    if slots in {1, 100}:  # one after another, or all at once: nothing to choose
        assert best.greedy_s == pytest.approx(best.least_s)
