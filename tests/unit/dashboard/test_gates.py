"""What the dashboard shows of gates: what waits, what judges say, and how runs went."""

from combee.core.evaluation.outcomes.report import outcomes_report
from combee.core.gate.canary_fold import Canary
from combee.core.gate.canary_verdict import CanaryReport, canary_report
from combee.core.gate.policy import CanaryPolicy
from combee.core.playbook.comparison import Comparison
from combee.core.playbook.versions import empty
from combee.dashboard.views import gates
from combee.dashboard.views.rows import Row
from combee.log.commands.playbook import Candidate
from combee.log.reports.decisions import audit_trail, verdict_reports
from combee.log.reports.gate import verdict_text
from combee_schemas.gate import Decision, Judge, Verdict
from combee_schemas.outcome import Figures, OutcomeStatistics, VersionOutcomes
from combee_schemas.playbook import Label

MEASURED = Verdict(
    playbook="a",
    candidate=3,
    production=2,
    judge="evaluate",
    accepts=True,
    reason="not worse; password=hunter2",
    figures={"n": 40, "low": -0.01},
    judged_by="model m",
    judged_at_ms=5,
)


def candidate(*judges: Judge, verdicts: tuple[Verdict, ...] = ()) -> Candidate:
    said = {verdict.judge for verdict in verdicts}
    return Candidate(
        name="a",
        version=3,
        production=2,
        newest=4,
        since_ms=1,
        judges=judges,
        waits_for=tuple(judge for judge in judges if judge not in said),
        verdicts=verdicts,
        difference=Comparison(name="a", before=2, after=3),
    )


def verdict_rows(waiting: Candidate, canary: CanaryReport | None = None) -> list[Row]:
    return gates.verdict_rows(verdict_reports(waiting.verdicts, waiting.waits_for, canary))


def test_each_judge_has_a_row_with_reason_and_figures_and_secrets_are_not_shown() -> None:
    measured, awaited = verdict_rows(candidate("evaluate", "approve", verdicts=(MEASURED,)))
    assert (measured["said"], measured["figures"], measured["by"]) == (
        "accepts",
        "n 40, low -0.01",
        "model m",
    )
    assert "hunter2" not in str(measured)
    assert (awaited["judge"], awaited["said"]) == ("approve", "is awaited")


def test_of_a_canary_its_callers_and_runs_are_told_and_what_is_missing() -> None:
    terms = CanaryPolicy(share=0.25).terms("a", 3, 2, 0)
    canary = canary_report(Canary(playbook="a", terms=terms), 1)
    (row,) = verdict_rows(candidate("canary"), canary)
    assert row["said"] == "is awaited"
    assert "candidate 3: no score of 0 callers (0 runs)" in row["why"]
    assert "more callers with a scored run" in row["why"]
    assert "25% of the callers, margin" in row["figures"]
    late = MEASURED.model_copy(update={"judge": "canary", "accepts": False, "undecided": True})
    (row,) = verdict_rows(candidate("canary", verdicts=(late,)), canary)
    assert row["said"] == "is undecided"
    assert verdict_text(late).startswith("canary is undecided about version 3: not worse")


def test_outcomes_of_the_candidate_stand_beside_those_of_production() -> None:
    runs = Figures(runs=5, successes=3, failures=1, unscored=1)
    statistics = OutcomeStatistics(
        line="a", versions=tuple(VersionOutcomes(version=number, figures=runs) for number in (1, 2))
    )
    listed = list(gates.compared_rows(candidate("approve"), outcomes_report("a", statistics, 4)))
    assert [(row["which"], row["version"], row["success"], row["runs"]) for row in listed] == [
        ("candidate", 3, "not known", 0),
        ("production", 2, "75 % (30 to 95)", 5),
    ]
    first = candidate("approve").model_copy(update={"production": 0})
    assert [row["which"] for row in gates.compared_rows(first, outcomes_report("a", None))] == ["candidate"]


def test_the_audit_trail_says_who_decided_what_when_and_why_newest_first() -> None:
    decided = Decision(
        playbook="a",
        decided="rejected",
        candidate=3,
        before=2,
        version=2,
        judges=("evaluate", "approve"),
        verdicts=(MEASURED,),
        reason="too long",
        taken_back=4,
        made=5,
        decided_by="key:operators",
        decided_at_ms=30,
    )
    moved = Decision(
        playbook="a", decided="moved", before=2, version=1, decided_by="user:ada", decided_at_ms=40
    )
    learned, edited = (
        empty("a").model_copy(
            update={"version": at, "origin": origin, "created_at_ms": at, "issued_by": "key:operators"}
        )
        for at, origin in ((1, "batch"), (2, "edit"))
    )
    labels = (
        Label(playbook="a", label="staging", version=2, moved_at_ms=35, issued_by="user:bob"),
        Label(playbook="a", label="production", version=1, moved_at_ms=40, gate=("approve",)),
        Label(playbook="a", label="candidate", version=3, moved_at_ms=20),
    )
    listed = gates.audit_rows(audit_trail([decided, moved], [learned, edited], labels))
    assert [(row["what"], row["version"], row["by"], row["reason"]) for row in listed] == [
        ("production moved past the judges: version 2 → version 1", 1, "user:ada", "–"),
        ("staging → version 2", 2, "user:bob", "–"),
        (
            "version 3 rejected, agents go on reading version 2; 4 reflections taken back, version 5 is without them",
            3,
            "key:operators",
            "too long",
        ),
        ("version 2 from edit", 2, "key:operators", "–"),
    ]
    assert "evaluate accepts version 3" in listed[2]["said"]
    assert "n 40, low -0.01 (model m)" in listed[2]["said"]
    assert "hunter2" not in str(listed)
