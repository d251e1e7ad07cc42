"""Bisecting: the version with which a score fell, found in few evaluations."""

import asyncio
from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.core.evaluation.scoring import Points
from combee.log.evaluation.bisecting import bisect
from combee.log.evaluation.evaluator import Evaluated

QUESTIONS = 60


def worth(version: int, right: int) -> Evaluated:
    points = {f"q{n:02}": Points(right=float(n < right)) for n in range(QUESTIONS)}
    return Evaluated(playbook="p", version=version, points=points)


@given(st.integers(2, 3_000), st.data())
def test_the_version_with_which_the_score_fell_is_found_in_few_evaluations(
    last: int, data: st.DataObject
) -> None:
    fell = data.draw(st.integers(2, last))
    asked: list[int] = []

    async def evaluate(version: int) -> Evaluated:
        asked.append(version)
        return worth(version, 50 if version < fell else 20)

    found = asyncio.run(bisect(1, last, evaluate))
    assert (found.good, found.bad) == (fell - 1, fell)
    assert found.step.is_significant
    assert len(asked) == len(set(asked)) <= ceil(log2(last)) + 2


@pytest.mark.parametrize(("first", "last"), [(40, 40), (40, 38), (20, 50)])
async def test_ends_that_do_not_differ_or_are_better_are_looked_into_no_further(
    first: int, last: int
) -> None:
    asked: list[int] = []

    async def evaluate(version: int) -> Evaluated:
        asked.append(version)
        return worth(version, first if version == 1 else last)

    found = await bisect(1, 100, evaluate)
    assert (found.good, found.bad, asked) == (0, 0, [1, 100])


async def test_a_score_that_fell_little_by_little_is_told_as_such() -> None:
    async def evaluate(version: int) -> Evaluated:
        return worth(version, 60 - version)

    found = await bisect(1, 40, evaluate)
    assert found.ends.is_significant
    assert (found.bad - found.good, found.step.is_significant) == (1, False)
