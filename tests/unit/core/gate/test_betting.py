"""The always-valid test: its capitals are those of the reference, and they rarely win where they should not."""

from math import exp, log
from random import Random

import pytest

from combee.core.gate.betting import Bets
from support.rows import each_row

SHARE, MARGIN, ALPHA = 0.25, 0.05, 0.05


def fed(scores: list[tuple[float, bool]], *, share: float = SHARE, margin: float = MARGIN) -> Bets:
    bets = Bets()
    for score, is_candidate in scores:
        bets.bet(score, is_candidate=is_candidate, share=share, margin=margin)
    return bets


@each_row(
    ("n", "acceptance", "rejection"),
    [
        (10, 0.7871218030245601, 1.2758596403542675),
        (30, 0.9595684547499552, 1.0659651966146293),
        (60, 0.9425525087778189, 1.1008811473360323),
    ],
)
def test_capitals_are_those_of_the_authors_library(n: int, acceptance: float, rejection: float) -> None:
    """``confseq.betting.betting_mart`` (0.0.11) with these bets, effects scaled to [0, 1], null -margin and 0."""
    bets = fed([((7 * at) % 11 / 10, at % 4 == 0) for at in range(n)])
    assert exp(bets.acceptance) == pytest.approx(acceptance, rel=1e-12)
    assert exp(bets.rejection) == pytest.approx(rejection, rel=1e-12)


def test_a_bet_never_loses_more_than_half_of_the_capital() -> None:
    """Whatever comes, also with an extreme margin that wants to bet more than it has."""
    rng = Random(5)
    for margin in (0.05, 0.9):
        for share in (0.01, 0.5):
            bets = Bets()
            for _ in range(300):
                before = bets.acceptance, bets.rejection
                score = rng.choice([0.0, 1.0])
                bets.bet(score, is_candidate=rng.random() < 0.5, share=share, margin=margin)
                assert bets.acceptance - before[0] >= log(0.5) - 1e-9
                assert bets.rejection - before[1] >= log(0.5) - 1e-9


def won(effect: float, seed: int, *, callers: int = 3_000, share: float = 0.5) -> tuple[bool, bool]:
    """Return whether acceptance and rejection ever won among so many callers, looked at after each."""
    rng, bets, enough = Random(seed), Bets(), log(1 / ALPHA)
    accepted = rejected = False
    for _ in range(callers):
        is_candidate = rng.random() < share
        score = float(rng.random() < 0.8 + effect * is_candidate)
        bets.bet(score, is_candidate=is_candidate, share=share, margin=MARGIN)
        accepted, rejected = accepted or bets.acceptance >= enough, rejected or bets.rejection >= enough
    return accepted, rejected


def test_each_side_wins_where_it_should_and_rarely_where_it_should_not() -> None:
    """60 decisions of each kind; the study has thousands."""
    worse, same = ([won(effect, seed) for seed in range(60)] for effect in (-MARGIN, 0.0))
    assert sum(accepted for accepted, _ in worse) <= 7  # 3 are expected at most; more than 7 with 1 %
    assert sum(rejected for _, rejected in same) <= 7
    assert sum(accepted for accepted, _ in same) >= 42
    assert sum(rejected for _, rejected in worse) >= 42


def test_what_is_missing_shrinks_as_evidence_comes() -> None:
    options = {"alpha": ALPHA, "share": 0.5, "margin": MARGIN}
    fresh = Bets()
    assert fresh.callers_missing(**options) == pytest.approx(2 * 0.25 / 0.25 / MARGIN**2 * log(20), abs=1)
    won_already = Bets(n=10, acceptance=log(20))
    assert won_already.callers_missing(**options) == 0
