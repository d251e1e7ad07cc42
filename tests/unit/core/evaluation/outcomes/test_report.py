"""What is told of outcomes: estimates with their intervals, and in words what a version changed."""

import pytest

from combee.core.evaluation.outcomes.report import changes_text, outcomes_report
from combee_schemas.outcome import EntryOutcomes, Figures, Measure, OutcomeStatistics, VersionOutcomes
from combee_schemas.playbook import Change

FIGURES = Figures(
    runs=10, successes=4, failures=4, unscored=2, scores=(Measure(name="reward", n=2, mean=0.5, m2=0.02),)
)


def test_success_has_wilsons_interval_and_a_score_students() -> None:
    (version,) = outcomes_report(
        "a",
        OutcomeStatistics(line="a", versions=(VersionOutcomes(version=3, figures=FIGURES, last_at_ms=7),)),
    ).versions
    assert (version.version, version.runs, version.unscored) == (3, 10, 2)
    assert version.success is not None
    # Wilson, 4 of 8: as R's prop.test(4, 8, correct=FALSE) says.
    assert (version.success.low, version.success.high) == pytest.approx((0.2152, 0.7848), abs=5e-5)
    assert (version.success.mean, version.success.n) == (0.5, 8)
    reward = version.scores["reward"]
    assert (reward.low, reward.high) == pytest.approx((0.5 - 1.2706, 0.5 + 1.2706), abs=1e-3)


def test_what_is_not_known_is_not_told_as_a_number() -> None:
    nothing = outcomes_report("a", None)
    assert (nothing.versions, nothing.earlier, nothing.unplaced) == ((), None, 0)
    unscored = outcomes_report("a", OutcomeStatistics(line="a", earlier=Figures(runs=2, unscored=2))).earlier
    assert unscored is not None
    assert unscored.success is None
    single = Figures(runs=1, scores=(Measure(name="x", n=1, mean=2.0),))
    (entry,) = outcomes_report(
        "a", OutcomeStatistics(line="a", entries=(EntryOutcomes(entry_id="e", shown=4, used=single),))
    ).entries
    assert (entry.shown, entry.used.scores["x"].low) == (4, None)


def test_what_a_version_changed_in_signs() -> None:
    kinds = ("add", "import", "promote", "update", "remove", "merge", "echo")
    assert changes_text(Change(kind=kind) for kind in kinds) == "+3 ~1 -2"
    assert changes_text([Change(kind="echo")]) == ""
