"""What is told of outcomes: estimates with their intervals, and in words what a version changed."""

import pytest

from combee.core.evaluation.outcomes.report import (
    POINT_RUNS,
    changes_text,
    curve_of,
    help_text,
    outcomes_report,
)
from combee_schemas.outcome import EntryOutcomes, Figures, Measure, OutcomeStatistics, VersionOutcomes
from support.outcomes import by_version

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
    kinds = {"add": 2, "import": 1, "promote": 1, "update": 1, "remove": 1, "merge": 1, "echo": 5}
    assert changes_text(kinds) == "+4 ~1 -2"
    assert changes_text({"echo": 1}) == ""


def test_the_curve_begins_without_a_playbook_and_pools_versions_with_few_runs() -> None:
    curve = curve_of(
        by_version((0, 3, 37), (1, 4, 4), (2, 6, 6), (3, 25, 5), (4, 2, 0), (9, 1, 0), since_ms=100), newest=4
    )
    assert curve.baseline is not None
    assert curve.baseline.success is not None
    assert curve.baseline.success.mean == 3 / 40
    shown = [(point.first, point.version, point.at_ms, point.runs) for point in curve.points]
    assert shown == [(1, 2, 102, POINT_RUNS), (3, 4, 104, 32)]
    estimate = curve.of(curve.points[0])
    assert estimate is not None
    # Wilson, 10 of 20: as R's prop.test(10, 20, correct=FALSE) says.
    assert (estimate.low, estimate.high) == pytest.approx((0.2993, 0.7007), abs=5e-5)


def test_whether_it_helps_is_said_with_intervals_and_doubt_where_they_overlap() -> None:
    assert help_text(curve_of(by_version((0, 2, 38), (1, 36, 4)))) == (
        "Success rose from 5 % (1 to 17) without a playbook to 90 % (77 to 96) with version 1."
    )
    doubtful = help_text(curve_of(by_version((0, 20, 20), (1, 15, 15), (2, 11, 9))))
    assert doubtful.startswith(
        "Success rose from 50 % (35 to 65) without a playbook to 55 % (34 to 74) with version 2."
    )
    assert doubtful.endswith("The intervals overlap: this may be chance.")
    assert help_text(curve_of(by_version((0, 30, 0), (1, 0, 30)))).startswith("Success fell from 100 %")


def test_without_a_baseline_or_any_outcome_nothing_is_compared() -> None:
    alone = help_text(curve_of(by_version((1, 9, 1))))
    assert alone.endswith("No run without a playbook is known, so there is nothing to compare with.")
    assert help_text(curve_of(by_version((0, 9, 1)))) == "Success is 90 % (60 to 98) without a playbook."
    unscored = OutcomeStatistics(
        line="a", versions=(VersionOutcomes(version=1, figures=Figures(runs=9, unscored=9)),)
    )
    for nothing in (None, OutcomeStatistics(line="a", unplaced=3), unscored):
        curve = curve_of(nothing)
        assert (curve.points, curve.measure, help_text(curve)) == ((), "", "")


def test_where_runs_have_only_scores_the_one_that_most_have_is_drawn() -> None:
    scores = (Measure(name="speed", n=2, mean=3.0, m2=0.1), Measure(name="reward", n=30, mean=0.5, m2=2.0))
    scored = (
        VersionOutcomes(version=number, figures=Figures(runs=30, scores=scores), last_at_ms=1)
        for number in (0, 1)
    )
    curve = curve_of(OutcomeStatistics(line="a", versions=tuple(scored)))
    assert curve.measure == "reward"
    assert help_text(curve).startswith("Reward went from 0.500 (0.402 to 0.598) without a playbook to 0.500")
