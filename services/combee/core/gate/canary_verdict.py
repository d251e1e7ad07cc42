"""The verdict of a canary, and the report on it; pure."""

from collections.abc import Iterator
from math import exp, log, sqrt
from typing import Literal

from combee.core.gate.canary import in_share, is_over
from combee.core.gate.canary_fold import Arm, Canary
from combee_schemas.base import Value
from combee_schemas.gate import Verdict

MAX_UNEQUAL = 0.5
"""Maximum difference of the arms' unscored shares, as a share of the margin."""
ERRORS = 2.0
"""Standard errors within which a difference of the unscored shares is chance."""
MISMATCH_ERRORS = 4.0
"""The same for the number of callers in each arm, which is tested repeatedly."""
LARGEST_LOGARITHM = 700.0
"""Largest logarithm whose exponential is finite."""

State = Literal["open", "accepted", "worse", "late"]


class ArmReport(Value):
    """The callers of one arm."""

    version: int
    callers: int
    counted: int
    """Callers with a scored run, part of the callers."""
    runs: int
    unscored: int
    mean: float | None = None
    """Mean score of the counted callers."""


class CanaryReport(Value):
    """Progress of a canary."""

    state: State
    """accepted: not worse by the margin; worse: than control; late: undecided at the deadline."""
    missing: tuple[str, ...] = ()
    """Remaining conditions for acceptance."""
    candidate: ArmReport
    control: ArmReport
    share: float
    margin: float
    e_acceptance: float
    e_worse: float
    e_needed: float
    unproven: int = 0
    """Outcomes ignored because their source is not proven."""
    misplaced: int = 0
    """Runs ignored because they were shown a version of the other arm."""
    turned_away: int = 0
    """Runs ignored because the maximum number of callers was reached."""
    opened_at_ms: int
    deadline_ms: int

    @property
    def summary(self) -> str:
        """The report in one line."""
        sides = (("candidate", self.candidate), ("control", self.control))
        arms = ", ".join(
            f"{name} {side.version}: {'no score' if side.mean is None else f'{side.mean:.3f}'} of {side.counted}"
            f" callers ({side.runs} runs)"
            for name, side in sides
        )
        passed_over = f"; {self.unproven} outcomes without proof" if self.unproven else ""
        evidence = (
            f"e-value {self.e_acceptance:.3g} of {self.e_needed:.3g}, of being worse {self.e_worse:.3g}"
        )
        return f"{arms}; {evidence}{passed_over}"


def canary_text(report: CanaryReport) -> str:
    """Return a canary's progress and remaining conditions in one line."""
    waits = f"; waits for {'; '.join(report.missing)}" if report.state == "open" else ""
    return f"canary {report.state}: {report.summary}{waits}"


def canary_report(canary: Canary, now_ms: int) -> CanaryReport:
    """Return a canary's progress; a worse candidate is closed whatever else is missing."""
    terms, bets, missing = canary.terms, canary.bets, tuple(_missing(canary))
    state: State = "open" if missing else "accepted"
    if bets.rejection >= log(1 / terms.alpha):
        state = "worse"
    elif missing and is_over(terms, now_ms):
        state = "late"
    return CanaryReport(
        state=state,
        missing=missing,
        candidate=_arm_report(canary.candidate, terms.candidate),
        control=_arm_report(canary.control, terms.control),
        share=terms.share,
        margin=terms.margin,
        e_acceptance=exp(min(LARGEST_LOGARITHM, bets.acceptance)),
        e_worse=exp(min(LARGEST_LOGARITHM, bets.rejection)),
        e_needed=1 / terms.alpha,
        unproven=canary.unproven,
        misplaced=canary.misplaced,
        turned_away=canary.turned_away,
        opened_at_ms=terms.opened_at_ms,
        deadline_ms=terms.deadline_ms,
    )


def _arm_report(arm: Arm, version: int) -> ArmReport:
    return ArmReport(
        version=version,
        callers=arm.callers,
        counted=arm.counted,
        runs=arm.runs,
        unscored=arm.unscored,
        mean=arm.mean if arm.counted else None,
    )


def verdict_on(canary: Canary, now_ms: int) -> Verdict | None:
    """Return the canary's verdict; None: not yet."""
    report, terms = canary_report(canary, now_ms), canary.terms
    if report.state == "open":
        return None
    reasons = {
        "accepted": f"not worse than version {terms.control} by {terms.margin:g} or more",
        "worse": f"worse than version {terms.control}",
        "late": f"not decided by its deadline: {'; '.join(report.missing)}",
    }
    figures: dict[str, float] = {
        "candidate": canary.candidate.mean,
        "candidate_callers": canary.candidate.counted,
        "control": canary.control.mean,
        "control_callers": canary.control.counted,
        "runs": canary.candidate.runs + canary.control.runs,
        "e_acceptance": report.e_acceptance,
        "e_worse": report.e_worse,
        "margin": terms.margin,
        "alpha": terms.alpha,
    }
    return Verdict(
        playbook=canary.playbook,
        candidate=terms.candidate,
        production=terms.control,
        judge="canary",
        accepts=report.state == "accepted",
        undecided=report.state == "late",
        reason=f"{reasons[report.state]}; {report.summary}"[:2000],
        figures=figures,
        judged_by="control",
        judged_at_ms=now_ms,
    )


def _missing(canary: Canary) -> Iterator[str]:
    """Yield the remaining conditions for acceptance."""
    terms, bets = canary.terms, canary.bets
    if bets.acceptance < log(1 / terms.alpha):
        callers = bets.callers_missing(alpha=terms.alpha, share=terms.share, margin=terms.margin)
        yield f"about {callers:,} more callers with a scored run if it is not different"
    yield from _imbalances(canary)


def _imbalances(canary: Canary) -> Iterator[str]:
    """Yield differences between the arms that the test assumes do not exist."""
    terms, n, counted = canary.terms, canary.bets.n, canary.candidate.counted
    (ours, our_error), (theirs, their_error) = (_unscored(canary, side) for side in (True, False))
    if abs(ours - theirs) > max(MAX_UNEQUAL * terms.margin, ERRORS * sqrt(our_error**2 + their_error**2)):
        yield f"equal shares of unscored runs: {ours:.1%} of the candidate's, {theirs:.1%} of control's"
    if abs(counted - n * terms.share) > MISMATCH_ERRORS * sqrt(n * terms.share * (1 - terms.share)):
        yield f"scores of {terms.share:.0%} of the callers from the candidate's: {counted} of {n}"


def _unscored(canary: Canary, is_candidate: bool) -> tuple[float, float]:  # noqa: FBT001 - one of two arms
    """Return the unscored share of an arm's runs, averaged over its callers, and its standard error."""
    arm = canary.candidate if is_candidate else canary.control
    waiting = sum(1 for caller in canary.waiting if in_share(caller, canary.terms) is is_candidate)
    n = arm.counted + waiting
    if not n:
        return 0.0, 0.0
    # All runs of a waiting caller are unscored.
    mean, squares = (arm.shares + waiting) / n, (arm.share_squares + waiting) / n
    return mean, sqrt(max(0.0, squares - mean**2) / n)
