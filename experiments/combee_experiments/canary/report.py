"""The tables and criteria of ``canary``."""

from collections.abc import Iterator, Mapping
from math import sqrt

from combee_experiments.running.cells import Measured
from combee_experiments.running.report import Panel, Report, Series, Table, Verdict

MARGIN, ALPHA = 0.05, 0.05
CANARY, PEEKED, BY_RUN, UNBLOCKED = "canary", "fixed test, looked at", "runs as unit", "not blocked"
PLAIN, EQUAL, HEAVY, HIDDEN = "80 %", "equal arms", "heavy callers", "failures hidden"
FAR, WRONG, SAME = "worse by 0.2", "worse by the margin", "no different"
EFFECTS: Mapping[str, float] = {
    FAR: -0.2,
    WRONG: -MARGIN,
    "worse by half the margin": -MARGIN / 2,
    SAME: 0.0,
    "better by the margin": MARGIN,
}
FIXED = 791
"""Runs per arm of the fixed test: 2 · 0.8 · 0.2 · (1.645 + 0.842)² / 0.05²."""
FORGED: Mapping[str, float] = {"one caller in 100 lies": 0.01, "one in 10 lies": 0.1, "three in 10 lie": 0.3}
POWER, SURE, MOST_EXPOSED, MOST_TIMES = 0.8, 0.99, 100, 2
SETTINGS = (
    "Callers, 10 % of them the candidate's unless arms are equal, have one run each; heavy ones (8,000) come again as"
    " a Pareto law (1.2) says, with own rates (standard deviation 0.1). Drift: ±0.15 once in 2,000 runs."
)


def report_on(measured: Measured) -> Report:
    """Return what was found."""
    return Report(
        tables=(_table(measured),),
        verdicts=tuple(_verdicts(measured)),
        panels=(_panel(measured.where(CANARY, setting=PLAIN)),),
        remarks=(SETTINGS,),
    )


def _panel(measured: Measured) -> Panel:
    """Return how many decisions accept and close, by how much better or worse the candidate is."""
    effects = [str(effect) for effect in measured.values("effect")]
    series = tuple(
        Series(
            name=kind,
            points=tuple(
                (EFFECTS[effect], measured.where(CANARY, effect=effect).spread(kind)) for effect in effects
            ),
        )
        for kind in ("accepted", "worse")
    )
    return Panel(title="decisions at 80 %", x="the candidate's difference", y="decisions", series=series)


def _rate(measured: Measured, kind: str) -> float:
    return sum(measured.spread(kind).values) / _decisions(measured)


def _decisions(measured: Measured) -> float:
    return sum(measured.spread("decisions").values)


def _found(measured: Measured) -> Iterator[tuple[str, str, str, Measured]]:
    for arm in measured.arms():
        for setting in measured.where(arm).values("setting"):
            for effect in measured.where(arm, setting=setting).values("effect"):
                yield arm, str(setting), str(effect), measured.where(arm, setting=setting, effect=effect)


def _table(measured: Measured) -> Table:
    rows = []
    for arm, setting, effect, found in _found(measured):
        rates = (f"{_rate(found, kind):.1%}" for kind in ("accepted", "worse", "late"))
        took = (
            f"{found.spread(name).mean:,.0f}"
            for name in ("candidate_mean", "candidate_80", "callers_mean", "runs")
        )
        rows.append((arm, setting, effect, f"{_decisions(found):,.0f}", *rates, *took))
    columns = (
        "decided by",
        "setting",
        "the candidate is",
        "decisions",
        "accepted",
        "closed as worse",
        "not decided",
    )
    needed = ("its callers, mean", "its callers, 80 %", "callers, mean", "runs, mean")
    note = "Means are over decided canaries; 80 %: time until that share of all decisions was made."
    return Table(title="What became of candidates", columns=(*columns, *needed), rows=tuple(rows), note=note)


def _verdicts(measured: Measured) -> Iterator[Verdict]:
    canary = measured.where(CANARY)
    honest = [str(setting) for setting in canary.values("setting") if setting not in {HIDDEN, *FORGED}]
    yield _error(
        "a candidate worse by the margin is accepted", canary.where(effect=WRONG), honest, "accepted"
    )
    yield _error(
        "a candidate that is no different is closed as worse", canary.where(effect=SAME), honest, "worse"
    )
    same = canary.where(setting=PLAIN, effect=SAME)
    yield Verdict(
        criterion=f"of those that are no different {POWER:.0%} are accepted at 80 % success",
        met=_rate(same, "accepted") >= POWER,
        told=f"{_rate(same, 'accepted'):.1%}",
    )
    far = canary.where(setting=PLAIN, effect=FAR)
    exposed = far.spread("candidate_mean").mean
    yield Verdict(
        criterion=f"of those worse by 0.2 {SURE:.0%} are closed, after {MOST_EXPOSED} of their callers in the mean",
        met=_rate(far, "worse") >= SURE and exposed <= MOST_EXPOSED,
        told=f"{_rate(far, 'worse'):.1%}, {exposed:.0f} callers",
    )
    equal = canary.where(setting=EQUAL, effect=SAME).spread("candidate_80").mean
    yield Verdict(
        criterion=f"with equal arms 80 % are decided within {MOST_TIMES} times the fixed test's {FIXED} per arm",
        met=equal <= MOST_TIMES * FIXED,
        told=f"{equal:,.0f} per arm, {equal / FIXED:.2f} times",
    )
    yield _error("one that hides failures is accepted", canary.where(effect=WRONG), [HIDDEN], "accepted")


def _error(what: str, measured: Measured, settings: list[str], kind: str) -> Verdict:
    found = {setting: measured.where(setting=setting) for setting in settings}
    rates = {setting: _rate(one, kind) for setting, one in found.items()}
    bounds = {
        setting: ALPHA + 2 * sqrt(ALPHA * (1 - ALPHA) / _decisions(one)) for setting, one in found.items()
    }
    worst = max(rates, key=lambda setting: rates[setting] - bounds[setting])
    return Verdict(
        criterion=f"{what} in {ALPHA:.0%} of the decisions at most",
        met=all(rate <= bounds[setting] for setting, rate in rates.items()),
        told=f"worst {rates[worst]:.1%} ({worst}; with sampling error up to {bounds[worst]:.1%})",
    )
