import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.core.batching.sizing import reasons
from combee.core.batching.sizing.decide import decide
from combee.core.batching.sizing.plateau import fit_power_law, plateau, tau
from combee.core.batching.sizing.policy import Iteration, SizingPolicy, iteration_of
from combee.core.playbook.versions import empty
from combee_schemas.control import BatchSize, SizingKind
from combee_schemas.playbook import Playbook
from support.flat import changed, flat
from support.rows import each_row

SIZES = (5, 10, 25, 50, 100)
FORMULA_S = (2978, 1892, 843, 508, 360)
FINER_S = (2890, 1565, 730, 506, 449)
"""Epoch seconds at these sizes as the paper prints them (GEPA, figure)."""
POLICY = SizingPolicy(kind="plateau")
KEEP_UP = SizingPolicy(kind="keep-up")


# ---- the paper's choice


@pytest.mark.parametrize(("epoch_s", "expected"), [(FORMULA_S, 54), (FINER_S, 62)], ids=["formula", "finer"])
def test_the_papers_points_give_the_size_that_follows_from_them(
    epoch_s: Sequence[float], expected: int
) -> None:
    fit = fit_power_law(list(zip(SIZES, epoch_s, strict=True)))
    assert abs(plateau(fit, smallest=5, most=2000) - expected) <= 1


@pytest.mark.parametrize(("alpha", "expected"), [(0.466, 84), (0.41, 94)])
def test_shallower_fits_give_the_sizes_that_the_paper_chose(alpha: float, expected: int) -> None:
    fit = fit_power_law([(b, 1000 * b**-alpha) for b in SIZES])
    assert abs(plateau(fit, smallest=5, most=2000) - expected) <= 1


@given(st.floats(0.01, 1000), st.floats(0.05, 3), st.sampled_from([2, 5, 8]))
def test_the_amplitude_cancels_and_the_slope_there_is_tau(amplitude: float, alpha: float, first: int) -> None:
    fit = fit_power_law([(b, amplitude * b**-alpha) for b in (first, 3 * first, 7 * first)])
    assert fit is not None
    assert (fit.a, fit.alpha, fit.r_squared) == pytest.approx((amplitude, alpha, 1), rel=1e-6)
    exact = (fit.alpha * fit.a / tau(fit, first)) ** (1 / (fit.alpha + 1))
    assert exact == pytest.approx(first * 62.5 ** (1 / (1 + alpha)), rel=1e-6)
    assert plateau(fit, smallest=first, most=10**9) == round(exact)


@each_row(
    "points",
    [
        [],
        [(5, 100)],
        [(5, 100), (5, 90)],
        [(5, 100), (10, 100)],
        [(5, 100), (10, 150)],
        [(5, 100), (10, 0)],
        [(5, math.inf), (10, 1)],
        [(5, math.nan), (10, 1)],
    ],
    ids=["none", "one", "one size", "flat", "slower", "nothing", "infinite", "no number"],
)
def test_a_degenerate_fit_falls_back_to_the_smallest_candidate(points: list[tuple[float, float]]) -> None:
    assert plateau(fit_power_law(points), smallest=5, most=2000) == 5


def test_the_choice_is_bounded() -> None:
    fit = fit_power_law(list(zip(SIZES, FORMULA_S, strict=True)))
    assert plateau(fit, smallest=5, most=30) == 30


# ---- what a version says


VERSION = flat(
    Playbook, name="a", version=7, batch_id="b", batch_sequence=6, origin="batch", reflections=5, batch_size=5,
    close_reason="size", waiting=2, closed_at_ms=1000, created_at_ms=3500,
)  # fmt: skip


def test_a_version_tells_of_its_batch() -> None:
    assert iteration_of(VERSION) == Iteration(
        playbook="a", sequence=6, asked=5, reflections=5, is_fair=True, waiting=2, closed_at_ms=1000, delay_s=2.5
    )  # fmt: skip
    assert not iteration_of(VERSION.model_copy(update={"origin": "edit", "batch": None})).is_batch
    assert not iteration_of(changed(VERSION, reason="branch", reflections=0)).is_batch, "a fork took no time"


@each_row(
    "other",
    [{"reason": "flush"}, {"reflections": 4}, {"degraded": True}, {"created_at_ms": 1000}],
    ids=lambda other: next(iter(other)),
)
def test_only_full_batches_that_went_well_are_measurements(other: dict[str, object]) -> None:
    assert not iteration_of(changed(VERSION, **other)).is_fair


# ---- the fold


def iteration(sequence: int, asked: int, delay_s: float, **fields: object) -> Iteration:
    """Return a full batch of the size asked for."""
    made: dict[str, object] = {"reflections": asked, "is_fair": True, "closed_at_ms": 1000 * sequence}
    return Iteration(playbook="a", sequence=sequence, asked=asked, delay_s=delay_s, **{**made, **fields})  # type: ignore[arg-type]


def delay(size: int) -> float:
    return 3.0 * math.pow(size / 5, 0.4)


def profiled(policy: SizingPolicy, *, every_s: float = 1.0, waiting: int = 0) -> BatchSize:
    """Return what stands after a profile in which a reflection arrives ``every_s`` seconds."""
    now = decide(None, iteration_of(empty("a")), policy)
    sequence, closed_s = 0, 1.0
    while now.phase == "profiling":
        sequence, size = sequence + 1, now.batch_size
        closed_s += every_s * size
        at = {"closed_at_ms": round(1000 * closed_s), "waiting": waiting}
        now = decide(now, iteration(sequence, size, delay(size), **at), policy)
    return now


def test_every_candidate_is_measured_once_in_order_and_then_the_plateau_stands() -> None:
    now = profiled(POLICY)
    assert [one.batch_size for one in now.observations] == [5, 10, 20, 40, 80]
    assert (now.phase, now.batch_size) == ("settled", round(5 * 62.5 ** (1 / 1.6)))
    assert {"A", "alpha", "r_squared", "tau", "plateau"} <= set(now.numbers)
    assert "larger batches save little" in now.reason


def test_a_batch_cut_before_the_candidate_was_known_is_no_miss() -> None:
    now = decide(None, iteration_of(empty("a")), POLICY)
    after = decide(now, iteration(1, 40, 9.0), POLICY)
    assert (after.batch_size, after.unfilled) == (5, 0)
    again = decide(after, iteration(2, 40, 9.0), POLICY)
    assert (again.batch_size, again.unfilled) == (5, 0)


@pytest.mark.parametrize("kind", ["plateau", "keep-up"])
def test_the_start_value_stands_until_a_batch_is_applied_and_is_no_measurement(kind: SizingKind) -> None:
    policy = SizingPolicy(kind=kind)
    edited = Iteration(playbook="a", sequence=0, is_batch=False)
    start = decide(None, edited, policy)
    assert (start.batch_size, start.phase, start.reason) == (40, "profiling", reasons.STARTING)
    assert decide(start, edited, policy) == start
    # The first lessons of a playbook take longer to write than any later ones.
    first = decide(start, iteration(1, 40, 60.0), policy)
    assert (first.batch_size, first.observations) == (5, ())
    assert decide(None, edited, SizingPolicy(kind=kind, configured=60)).batch_size == 60
    assert decide(None, edited, SizingPolicy(kind=kind, most=30)).batch_size == 30


@pytest.mark.parametrize(
    ("kind", "measured"), [("plateau", [5, 10, 20, 40, 80]), ("keep-up", [5, 10, 20, 40])]
)
def test_keep_up_measures_no_candidate_that_is_larger_than_one_that_keeps_up(
    kind: SizingKind, measured: list[int]
) -> None:
    # One reflection a second: batches of 10 manage 2.5.
    now = profiled(SizingPolicy(kind=kind))
    assert [one.batch_size for one in now.observations] == measured


def test_keep_up_goes_on_measuring_while_a_backlog_waits_or_nothing_manages_what_arrives() -> None:
    policy = SizingPolicy(kind="keep-up")
    behind = profiled(policy, waiting=90)
    assert [one.batch_size for one in behind.observations] == [5, 10, 20, 40, 80]
    flooded = profiled(policy, every_s=0.1)
    assert [one.batch_size for one in flooded.observations] == [5, 10, 20, 40, 80]


def test_a_candidate_that_does_not_fill_ends_the_profile_with_what_there_is() -> None:
    now = decide(None, iteration_of(empty("a")), POLICY)
    for sequence, size in ((1, 5), (2, 10)):
        now = decide(now, iteration(sequence, size, delay(size)), POLICY)
    for sequence in (3, 4, 5):
        now = decide(now, iteration(sequence, 20, 4.0, reflections=12, is_fair=False), POLICY)
    assert now.phase == "settled"
    assert "batches of 20 did not fill" in now.reason
    assert len(now.observations) == 2


def test_what_was_out_of_reach_is_measured_once_windows_fill() -> None:
    now = decide(None, iteration_of(empty("a")), POLICY)
    for sequence, asked in enumerate((now.batch_size, 5, 5, 5), 1):
        now = decide(now, iteration(sequence, asked, 3.0, reflections=1, is_fair=False), POLICY)
    assert (now.phase, now.batch_size) == ("settled", 5)
    now = decide(now, iteration(5, 5, 3.0, waiting=500), POLICY)
    assert now.phase == "profiling"


def test_delays_that_drift_from_the_fit_start_a_new_profile_and_one_outlier_does_not() -> None:
    now = profiled(POLICY)
    size, first = now.batch_size, now.sequence
    for sequence in range(first + 1, first + 40):
        slow = 3600 if sequence == first + 30 else 1
        now = decide(now, iteration(sequence, size, slow * delay(size)), POLICY)
    assert now.phase == "settled"
    for sequence in range(first + 40, first + 60):
        now = decide(now, iteration(sequence, size, 4 * delay(size)), POLICY)
        if now.phase == "profiling":
            break
    assert now.phase == "profiling"
    assert "drifted" in now.reason


def test_a_new_profile_stands_for_twenty_batches_whatever_they_take() -> None:
    now = profiled(POLICY)
    size = now.batch_size
    for _ in range(19):
        now = decide(now, iteration(now.sequence + 1, size, 10 * delay(size)), POLICY)
        assert now.phase == "settled"
    now = decide(now, iteration(now.sequence + 1, size, 10 * delay(size)), POLICY)
    assert now.phase == "profiling"


def test_a_fit_that_missed_by_much_is_given_up_all_the_same() -> None:
    now = decide(None, iteration_of(empty("a")), POLICY)
    while now.phase == "profiling":
        spoilt = 3600.0 if now.batch_size == 5 else delay(now.batch_size)
        now = decide(now, iteration(now.sequence + 1, now.batch_size, spoilt), POLICY)
    size = now.batch_size
    for _ in range(60):
        now = decide(now, iteration(now.sequence + 1, size, delay(size)), POLICY)
        if now.phase == "profiling":
            break
    assert now.phase == "profiling"


def test_a_profile_that_an_outage_spoilt_is_made_again_when_a_backlog_shows_it() -> None:
    now, sequence = decide(None, iteration_of(empty("a")), POLICY), 0
    while now.phase == "profiling":
        sequence, size = sequence + 1, now.batch_size
        now = decide(now, iteration(sequence, size, 3600.0 if size == 80 else delay(size)), POLICY)
    assert (now.batch_size, now.numbers["alpha"] < 0) == (5, True)
    assert "larger batches take no less time" in now.reason
    while now.phase == "settled" and sequence < 50:
        sequence += 1
        now = decide(now, iteration(sequence, 5, delay(5), waiting=900), POLICY)
    assert (now.phase, now.observations) == ("profiling", ())
    assert "900 wait" in now.reason


def test_repeats_and_versions_without_a_batch_change_nothing() -> None:
    now = profiled(KEEP_UP)
    assert decide(now, iteration(now.sequence, now.batch_size, 99.0), KEEP_UP) == now
    edited = Iteration(playbook="a", sequence=now.sequence, is_batch=False)
    assert decide(now, edited, KEEP_UP) == now


def test_another_policy_starts_afresh_and_the_configured_size_is_said_once() -> None:
    chosen = SizingPolicy(configured=33)
    configured = decide(profiled(POLICY), iteration(9, 5, 1.0), chosen)
    assert (configured.batch_size, configured.phase) == (33, "configured")
    assert decide(configured, iteration(10, 33, 1.0), chosen) == configured
    assert decide(configured, iteration(11, 33, 1.0), POLICY).phase == "profiling"


def test_the_record_is_all_the_state_there_is() -> None:
    now = profiled(KEEP_UP)
    read_back = BatchSize.model_validate(now.model_dump())
    news = iteration(now.sequence + 1, now.batch_size, 9.0, waiting=3, closed_at_ms=90_000)
    assert decide(read_back, news, KEEP_UP) == decide(now, news, KEEP_UP)
