"""The fold of a canary: each caller counts once, only what is proven counts, and a restart changes nothing."""

from random import Random
from typing import Any

import pytest

from combee.core.gate import canary_fold
from combee.core.gate.canary import place_of, version_for
from combee.core.gate.canary_fold import Canary, CanaryFold, resumed
from combee.core.gate.canary_verdict import canary_report, verdict_on
from combee.core.gate.policy import CanaryPolicy
from combee_schemas.base import Shown
from combee_schemas.canary import CanaryStatistics, CanaryTerms
from combee_schemas.codec import encode
from combee_schemas.outcome import Outcome

NAME = "support/refunds"
POLICY = CanaryPolicy(share=0.5, within_ms=1_000)
TERMS = POLICY.terms(NAME, 2, 1, 0)


def callers_of(version: int, count: int, terms: CanaryTerms = TERMS) -> list[str]:
    """Return callers who are shown a version."""
    names = (f"agent-{number}" for number in range(100_000))
    chosen = (name for name in names if version_for(place_of(NAME, terms, name), terms) == version)
    return [next(chosen) for _ in range(count)]


def outcome(
    caller: str, run: str = "", *, version: int | None = None, terms: CanaryTerms = TERMS, **said: Any
) -> Outcome:
    place = place_of(NAME, terms, caller)
    shown = Shown(version=version_for(place, terms) if version is None else version, canary=place)
    return Outcome(run_id=run or f"run of {caller}", playbook=NAME, shown=shown, **said)


def folded(*outcomes: Outcome, terms: CanaryTerms = TERMS, is_proven: bool = True, **options: Any) -> Canary:
    fold = CanaryFold(lambda _: terms, **options)
    for offset, each in enumerate(outcomes):
        fold.add(offset, each, is_proven=is_proven)
    found = fold.get(NAME)
    assert found is not None
    return found


# ---- what counts


def test_outcomes_count_for_the_arm_of_their_caller() -> None:
    (candidate,), (control,) = callers_of(2, 1), callers_of(1, 1)
    found = folded(outcome(candidate, success=True), outcome(control, score={"score": 0.25}))
    assert (found.candidate.counted, found.candidate.mean) == (1, 1.0)
    assert (found.control.counted, found.control.mean) == (1, 0.25)


def test_a_caller_counts_once_however_many_runs_it_has() -> None:
    (caller,) = callers_of(2, 1)
    found = folded(*(outcome(caller, f"r{at}", success=at == 0) for at in range(50)))
    assert (found.candidate.runs, found.candidate.counted, found.bets.n) == (50, 1, 1)
    assert found.candidate.mean == 1.0, "its first run alone"


def test_a_late_score_counts_and_what_is_said_again_does_not() -> None:
    (caller,) = callers_of(2, 1)
    late = Outcome(run_id="r", playbook=NAME, success=True)
    found = folded(outcome(caller, "r"), late, late, outcome(caller, "r", success=False))
    assert (found.candidate.runs, found.candidate.unscored, found.candidate.mean) == (1, 0, 1.0)
    assert folded(outcome(caller, "r")).candidate.unscored == 1


def test_without_proof_an_outcome_is_counted_as_unproven_and_as_nothing_else() -> None:
    (caller,) = callers_of(2, 1)
    found = folded(outcome(caller, success=True), is_proven=False)
    assert (found.unproven, found.candidate.runs, found.bets.n) == (1, 0, 0)


def test_a_forged_word_before_the_proven_one_does_not_hold() -> None:
    (caller,) = callers_of(2, 1)
    fold = CanaryFold(lambda _: TERMS)
    fold.add(0, outcome(caller, "r", success=True), is_proven=False)
    fold.add(1, outcome(caller, "r", success=False), is_proven=True)
    found = fold.get(NAME)
    assert found is not None
    assert (found.candidate.counted, found.candidate.mean) == (1, 0.0)


def test_a_run_that_was_shown_another_version_than_its_callers_is_misplaced() -> None:
    (caller,) = callers_of(2, 1)
    found = folded(outcome(caller, version=1, success=True))
    assert (found.misplaced, found.candidate.runs, found.control.runs) == (1, 0, 0)


def test_runs_without_a_place_and_of_another_candidate_take_no_part() -> None:
    (caller,) = callers_of(2, 1)
    other = TERMS.model_copy(update={"candidate": 3})
    plain = Outcome(run_id="p", playbook=NAME, shown=Shown(version=2), success=True)
    found = folded(plain, outcome(caller, terms=other, success=True))
    assert (found.candidate.runs, found.control.runs, found.misplaced) == (0, 0, 0)


@pytest.mark.parametrize("score", [-0.1, 1.1])
def test_a_score_outside_of_0_to_1_is_none(score: float) -> None:
    (caller,) = callers_of(2, 1)
    assert folded(outcome(caller, score={"score": score})).candidate.unscored == 1


# ---- restarts and bounds


def said(count: int, seed: int = 3) -> list[Outcome]:
    rng = Random(seed)
    made = []
    for _ in range(count):
        number = rng.randrange(60)
        success = rng.choice([None, True, False])
        made.append(outcome(f"agent-{number % 23}", f"r{number}", success=success))
    return made


def statistics(canary: Canary) -> CanaryStatistics:
    return canary.statistics(0)


def test_what_is_written_comes_back_as_it_was() -> None:
    found = folded(*said(100))
    assert statistics(resumed(statistics(found))) == statistics(found)


def test_wherever_reading_begins_again_the_same_is_known() -> None:
    outcomes = said(200)
    whole = statistics(folded(*outcomes))
    for start in range(0, 200, 9):
        before = folded(*outcomes[:start])
        fold = CanaryFold(lambda _: TERMS, [statistics(before)], start=start)
        for offset, each in enumerate(outcomes):
            fold.add(offset, each, is_proven=True)
        found = fold.get(NAME)
        assert found is not None
        assert statistics(found) == whole, f"begun at {start}"


def test_other_terms_begin_anew() -> None:
    (caller,) = callers_of(2, 1)
    before = statistics(folded(outcome(caller, success=True)))
    again = TERMS.model_copy(update={"control": 0})
    assert folded(terms=again, known=[before]).candidate.counted == 0


def test_a_late_score_of_a_run_before_other_terms_takes_nothing_from_the_new_canary() -> None:
    """A promotion begins a canary anew, with the same callers; what they ran before is scored after it."""
    (caller,) = callers_of(1, 1)
    again = TERMS.model_copy(update={"control": 5})
    terms = TERMS
    fold = CanaryFold(lambda _: terms)
    fold.add(0, outcome(caller, "before"), is_proven=True)
    terms = again
    fold.add(1, outcome(caller, "after", terms=again, success=True), is_proven=True)
    fold.add(2, Outcome(run_id="before", playbook=NAME, success=True), is_proven=True)
    (written,) = fold.changed(0)
    assert (written.control.runs, written.control.unscored, written.control.counted) == (1, 0, 1)


def test_callers_beyond_the_bound_are_turned_away_whichever_arm_is_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(canary_fold, "MAX_CALLERS", 10)
    found = folded(*(outcome(f"agent-{at}", success=True) for at in range(30)))
    assert (found.bets.n, found.turned_away) == (10, 20)
    late = folded(
        *(outcome(f"agent-{at}") for at in range(30)),
        *(Outcome(run_id=f"run of agent-{at}", playbook=NAME, success=True) for at in range(30)),
    )
    assert (late.bets.n, late.candidate.unscored + late.control.unscored) == (10, 0)


def test_the_largest_canary_fits_a_record() -> None:
    whole = (1 << 64) - 1
    largest = statistics(folded()).model_copy(
        update={"waiting": tuple((whole - at, 1 << 20) for at in range(canary_fold.MAX_CALLERS))}
    )
    assert len(encode(largest)) < CanaryStatistics.max_bytes


# ---- what follows


def runs_of(rate: float, callers: list[str], rng: Random, *, hidden: float = 0.0) -> list[Outcome]:
    """Return a run of each caller; of failures so many are told without saying so."""
    made = []
    for caller in callers:
        success = rng.random() < rate
        is_hidden = not success and rng.random() < hidden
        made.append(outcome(caller, success=None if is_hidden else success))
    return made


def tried(candidate: float, control: float, *, count: int = 1_500, hidden: float = 0.0) -> Canary:
    rng = Random(11)
    runs = [
        *runs_of(candidate, callers_of(2, count), rng, hidden=hidden),
        *runs_of(control, callers_of(1, count), rng),
    ]
    rng.shuffle(runs)
    return folded(*runs)


def test_a_better_candidate_is_accepted() -> None:
    verdict = verdict_on(tried(0.9, 0.8), 0)
    assert verdict is not None
    assert (verdict.accepts, verdict.undecided, verdict.judge) == (True, False, "canary")
    assert (verdict.candidate, verdict.production) == (2, 1)
    assert verdict.figures["e_acceptance"] >= 20


def test_a_worse_candidate_is_closed_by_itself() -> None:
    verdict = verdict_on(tried(0.6, 0.8), 0)
    assert verdict is not None
    assert (verdict.accepts, verdict.undecided) == (False, False)
    assert verdict.reason.startswith("worse than version 1")


def test_too_few_callers_decide_nothing_and_say_what_is_missing() -> None:
    canary = tried(0.8, 0.8, count=20)
    assert verdict_on(canary, 999) is None
    (missing,) = canary_report(canary, 999).missing
    assert "more callers" in missing


def test_after_its_deadline_a_candidate_stays_closed_and_the_verdict_says_so() -> None:
    verdict = verdict_on(tried(0.8, 0.8, count=20), 1_000)
    assert verdict is not None
    assert (verdict.accepts, verdict.undecided) == (False, True)
    assert verdict.reason.startswith("not decided by its deadline: about")


def test_failures_that_are_not_told_block_acceptance() -> None:
    """A candidate that fails more often and says nothing of it looks better than control."""
    canary = tried(0.75, 0.8, hidden=0.6)
    report = canary_report(canary, 0)
    assert report.e_acceptance >= report.e_needed
    assert report.state == "open"
    assert report.missing[0].startswith("equal shares of unscored runs")


def test_equal_shares_of_unscored_runs_block_nothing() -> None:
    rng = Random(2)
    runs = [
        outcome(caller, success=None if rng.random() < 0.2 else rng.random() < rate)
        for rate, version in ((0.9, 2), (0.8, 1))
        for caller in callers_of(version, 1_500)
    ]
    rng.shuffle(runs)
    assert canary_report(folded(*runs), 0).state == "accepted"


def test_callers_that_vanish_from_one_arm_block_acceptance() -> None:
    """As if runs with the candidate crashed before anything was told of them."""
    rng = Random(2)
    runs = [
        *runs_of(0.95, callers_of(2, 900), rng),
        *runs_of(0.8, callers_of(1, 1_500), rng),
    ]
    rng.shuffle(runs)
    report = canary_report(folded(*runs), 0)
    assert report.e_acceptance >= report.e_needed
    assert (report.state, report.missing) == (
        "open",
        ("scores of 50% of the callers from the candidate's: 900 of 2400",),
    )
