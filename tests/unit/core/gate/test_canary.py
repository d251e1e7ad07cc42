"""Who is shown a candidate: a stable share of those who name themselves, and nobody else."""

from dataclasses import replace

import pytest

from combee.core.gate.canary import caller_at, in_share, place_of, version_for, with_canary
from combee.core.gate.gate import Gate
from combee.core.gate.policy import CanaryPolicy
from combee_schemas.gate import Judge
from combee_schemas.playbook import Label

NAME = "support/refunds"
POLICY = CanaryPolicy(share=0.2, salt="s")
TERMS = POLICY.terms(NAME, 6, 4, 1_000)
CALLERS = [f"agent-{number}" for number in range(5_000)]


def shown(callers: list[str], salt: str = "s") -> list[int]:
    terms = replace(POLICY, salt=salt).terms(NAME, 6, 4, 1_000)
    return [version_for(place_of(NAME, terms, caller), terms) for caller in callers]


def test_a_share_of_the_callers_is_shown_the_candidate_and_all_others_production() -> None:
    versions = shown(CALLERS)
    assert set(versions) == {4, 6}
    assert versions.count(6) / len(CALLERS) == pytest.approx(0.2, abs=0.02)


def test_another_salt_and_another_candidate_deal_the_callers_anew() -> None:
    assert shown(CALLERS[:200]) != shown(CALLERS[:200], salt="other")
    other = POLICY.terms(NAME, 7, 4, 1_000)
    assert {version_for(place_of(NAME, other, caller), other) for caller in CALLERS[:200]} == {4, 7}
    moved = [
        caller
        for caller in CALLERS[:200]
        if in_share(caller_at(place_of(NAME, TERMS, caller)), TERMS)
        != in_share(caller_at(place_of(NAME, other, caller)), other)
    ]
    assert moved


def test_without_a_name_or_a_canary_there_is_no_place_and_production_is_shown() -> None:
    assert place_of(NAME, TERMS, "") == ""
    assert version_for("", TERMS) == 4


# ---- terms


def gate(*judges: Judge, production: int = 4, candidate: int | None = 6) -> Gate:
    label = None if candidate is None else Label(playbook=NAME, label="candidate", version=candidate)
    return Gate(
        production=Label(playbook=NAME, label="production", version=production, gate=judges), candidate=label
    )


def test_a_candidate_has_terms_where_a_canary_is_among_its_judges() -> None:
    judged = with_canary(gate("canary", "approve"), POLICY, now_ms=1_000)
    assert judged.candidate is not None
    assert judged.candidate.canary == TERMS
    assert with_canary(gate("approve"), POLICY, now_ms=1_000) == gate("approve")
    assert with_canary(gate("canary", candidate=None), POLICY, now_ms=0) == gate("canary", candidate=None)


def test_terms_stay_as_they_were_when_settings_change_and_time_passes() -> None:
    judged = with_canary(gate("canary"), POLICY, now_ms=1_000)
    assert with_canary(judged, CanaryPolicy(share=0.5), now_ms=9_000) == judged


def test_beside_another_production_version_a_canary_begins_anew_with_the_same_callers() -> None:
    judged = with_canary(gate("canary"), POLICY, now_ms=1_000)
    moved = replace(judged, production=gate("canary", production=5).production)
    again = with_canary(moved, POLICY, now_ms=9_000).candidate
    assert again is not None
    assert again.canary is not None
    assert (again.canary.control, again.canary.opened_at_ms) == (5, 9_000)
    assert place_of(NAME, again.canary, "agent-1") == place_of(NAME, TERMS, "agent-1")


def test_a_judge_that_is_asked_no_longer_leaves_no_terms() -> None:
    judged = with_canary(gate("canary"), POLICY, now_ms=1_000)
    without = replace(judged, production=gate("approve").production)
    assert with_canary(without, POLICY, now_ms=2_000) == gate("approve")
