"""The arrival rate, counted from closings: chance, jumps, silences, clumps, clocks and gaps."""

import pytest

from combee.core.batching.sizing.keep_up import arrivals_after
from combee.core.batching.sizing.policy import Iteration
from combee_schemas.control import BatchSize

NOBODY = BatchSize(playbook="a", batch_size=5)
HOUR_S = 3600.0


def after(
    state: BatchSize, *closings: tuple[float, int, int], delay_s: float = 1.0, skipped: int = 0
) -> BatchSize:
    """Fold closings of (seconds since the last, reflections, left waiting)."""
    at_ms = state.measured_at_ms or 1_700_000_000_000
    for passed_s, reflections, waiting in closings:
        at_ms += round(passed_s * 1000)
        sequence = state.sequence + 1 + skipped
        seen = Iteration(
            playbook="a", sequence=sequence, reflections=reflections, waiting=waiting,
            closed_at_ms=at_ms, delay_s=delay_s,
        )  # fmt: skip
        state = state.model_copy(update={"sequence": sequence, **arrivals_after(state, seen)})
    return state


STEADY = after(NOBODY, *[(5.0, 10, 0)] * 20)
"""Two a second, for a while."""


def test_arrivals_are_what_a_batch_took_and_what_its_window_grew_by() -> None:
    assert after(NOBODY, (0, 5, 0)).arrivals_per_s == 0
    assert after(NOBODY, (0, 5, 2), (4.0, 5, 7)).arrivals_per_s == 2.5
    assert STEADY.arrivals_per_s == pytest.approx(2)


def test_one_odd_interval_moves_the_estimate_little() -> None:
    assert after(STEADY, (5.0, 18, 0)).arrivals_per_s == pytest.approx(2.15, abs=0.01)
    assert after(STEADY, (5.0, 4, 0)).arrivals_per_s == pytest.approx(1.9, abs=0.02)


def test_a_jump_is_believed_at_once() -> None:
    assert after(STEADY, (2.0, 10, 30)).arrivals_per_s == 20


def test_after_a_long_silence_the_next_interval_tells_the_rate() -> None:
    quiet = after(STEADY, (24 * HOUR_S, 3, 0))
    assert quiet.arrivals_per_s < 0.002
    assert after(quiet, (2.5, 5, 0)).arrivals_per_s == 2


def test_what_piled_up_in_a_long_time_is_no_jump() -> None:
    assert after(STEADY, (HOUR_S, 10, 7190)).arrivals_per_s == pytest.approx(2, rel=0.01)


def test_windows_that_close_within_moments_are_one_measurement() -> None:
    clump = after(STEADY, (0.001, 10, 90), (0.001, 10, 80), (0.001, 10, 70))
    assert clump.arrivals_per_s == STEADY.arrivals_per_s
    assert after(clump, (59.997, 10, 80)).arrivals_per_s == pytest.approx(2, rel=0.1)


def test_a_clock_that_is_set_back_costs_one_measurement() -> None:
    back = after(STEADY, (-HOUR_S, 10, 0))
    assert back.arrivals_per_s == STEADY.arrivals_per_s
    assert after(back, *[(5.0, 20, 0)] * 30).arrivals_per_s == pytest.approx(4, rel=0.1)


def test_skipped_versions_are_no_measurement() -> None:
    missed = after(STEADY, (50.0, 10, 0), skipped=9)
    assert missed.arrivals_per_s == STEADY.arrivals_per_s
    assert after(missed, (5.0, 10, 0)).arrivals_per_s == pytest.approx(2)
