"""Batches of a replay, what they cost, and how long lessons waited."""

from hypothesis import given
from hypothesis import strategies as st

from combee.core.log.replaying.steps import (
    Arrival,
    as_batched,
    closed_at_ms,
    cut_anew,
    estimate,
    median_staleness_s,
)
from combee_schemas.base import Usage
from combee_schemas.plan import PlanSettings

SETTINGS = PlanSettings(copies=2, fan_in=32, max_levels=4, group_bytes=700 << 10)


def arrival(offset: int, at_s: float, sequence: int = 1) -> Arrival:
    return Arrival(
        offset=offset, reflection_id=f"r-{offset}", at_ms=int(at_s * 1000), size=500, sequence=sequence
    )


def offsets(batches: list[tuple[Arrival, ...]]) -> list[list[int]]:
    return [[one.offset for one in batch] for batch in batches]


def test_batches_are_as_they_were_without_what_is_left_out() -> None:
    there = [arrival(0, 0), arrival(1, 0, 2), arrival(2, 0), arrival(5, 0, 7)]
    assert offsets(as_batched(there)) == [[0, 2], [1], [5]]


def test_windows_that_are_cut_anew_close_when_full_or_overdue() -> None:
    there = [arrival(n, at) for n, at in enumerate([0, 1, 2, 3, 4, 60, 61, 200])]
    assert offsets(cut_anew(there, batch_size=3, max_wait_s=30)) == [[0, 1, 2], [3, 4], [5, 6], [7]]


@given(
    st.lists(st.integers(0, 500), max_size=60),
    st.integers(1, 9),
    st.floats(0.1, 100),
)
def test_no_reflection_is_left_out_and_none_waits_longer_than_it_may(
    gaps: list[int], size: int, wait_s: float
) -> None:
    there, at = [], 0
    for n, gap in enumerate(gaps):
        at += gap
        there.append(arrival(n, at))
    batches = cut_anew(there, batch_size=size, max_wait_s=wait_s)
    assert [one for batch in batches for one in batch] == there
    for batch in batches:
        assert 1 <= len(batch) <= size
        assert batch[-1].at_ms <= batch[0].at_ms + wait_s * 1000
        closed = closed_at_ms(batch, batch_size=size, max_wait_s=wait_s)
        assert batch[-1].at_ms <= closed <= max(batch[-1].at_ms, batch[0].at_ms + wait_s * 1000)


def test_an_estimate_counts_the_calls_of_the_trees_at_what_a_call_took() -> None:
    batch = tuple(arrival(n, 0) for n in range(40))
    before = Usage(calls=10, tokens_in=20_000, tokens_out=1_000, cached_tokens=5_000)
    told = estimate([batch, batch[:3]], SETTINGS, before)
    assert told.calls == 7 + 1
    assert (told.tokens_in, told.tokens_out, told.cached_tokens) == (16_000, 800, 4_000)


def test_a_lesson_waits_for_its_window_for_the_batch_before_and_for_its_own() -> None:
    first, second = (arrival(0, 0), arrival(1, 10)), (arrival(2, 11),)
    waited = median_staleness_s([first, second], [10_000, 11_000], {0: 5.0, 1: 2.0})
    assert waited == 6.0  # of 15 (from 0), 5 (from 10) and 6 (from 11, behind the first until 15, then 2)
    assert median_staleness_s([first], [10_000], {}) is None
