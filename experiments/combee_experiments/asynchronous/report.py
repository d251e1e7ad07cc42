"""The tables, criteria and panels of ``async``, for one set of data."""

from collections.abc import Iterator

from combee_experiments.data.samples import Data
from combee_experiments.running.cells import Measured
from combee_experiments.running.report import Panel, Report, Series, Table, Verdict
from combee_experiments.running.setup import Setup

SYNCHRONOUS = "synchronous"
LESSONS = 0.95
COLUMNS = (
    *("times", "mode", "all applied, s", "faster", "nine in ten, s", "faster"),
    *("versions behind, agents", "at most", "batches stale, trees", "at most", "lessons", "calls"),
)
TIMES = (
    "A call takes the latency as its median, an agent's run four times that: always, log-normal with sigma 1, or "
    "Pareto with shape 1.5 (the slowest of 100 takes about 14 medians). The n-th call has the same luck in every "
    "mode."
)
REAL = (
    "Model calls take their own time. Agents are simulated: their reflections were made before, and when they "
    "publish is drawn, log-normal with sigma 1 and four times the latency option as its median, and waited for."
)
MODES = (
    "Synchronous is the paper's iteration: as many agents as the batch has reflections start together, and the next "
    "ones wait for the version. In the other modes agents go on at once, batches have 20, and that many may lack "
    "a version. Nine in ten are told apart, as the very last reflection waits for the slowest agent in any mode."
)
STALE = (
    "Versions behind: between what an agent was shown at its start and the version its reflection went into. Batches "
    "stale: between a tree's base version and its own. Both are told by the log alone."
)
HARMLESS = (
    "The stand-in's reflections do not depend on what the agent was shown: that staleness costs no lessons here does "
    "not say that it is harmless."
)
OPEN = "The paper has no asynchronous iterations, so there is no number of its to stand beside."


def report_on(setup: Setup, data: Data, measured: Measured) -> Report:
    """Return what was found on one set of data."""
    fleets = [(int(one), measured.where(agents=one)) for one in measured.values("agents")]
    return Report(
        tables=tuple(_table(f"{data.name}: {agents} agents at once", found) for agents, found in fleets),
        verdicts=tuple(
            verdict
            for agents, found in fleets
            for verdict in _verdicts(f"{data.name}, {agents} agents", found)
        ),
        panels=tuple(_panel(f"{data.name}, {agents} agents", found) for agents, found in fleets),
        remarks=(TIMES, MODES, STALE, HARMLESS, OPEN) if setup.simulated else (REAL, MODES, STALE, OPEN),
    )


def _table(title: str, measured: Measured) -> Table:
    rows = tuple(
        _row(str(kind), mode, measured.where(times=kind))
        for kind in measured.values("times")
        for mode in measured.arms()
    )
    return Table(title=title, columns=COLUMNS, rows=rows)


def _row(kind: str, mode: str, measured: Measured) -> tuple[str, ...]:
    found = measured.where(mode)
    return (
        kind,
        mode,
        found.spread("seconds").told(0),
        f"{_faster(measured, mode):.1f} ×",
        found.spread("most_s").told(0),
        f"{_faster(measured, mode, 'most_s'):.1f} ×",
        found.spread("behind").told(),
        f"{found.spread('behind_most').high:.0f}",
        found.spread("stale").told(),
        f"{found.spread('stale_most').high:.0f}",
        found.spread("lessons").told(),
        found.spread("calls").told(0),
    )


def _verdicts(told: str, measured: Measured) -> Iterator[Verdict]:
    wrong = sum(one["applied"] != one["reflections"] or one["repeated"] != 0 for _, one in measured)
    yield Verdict(
        criterion=f"{told}: every reflection is in exactly one version, in every mode",
        met=not wrong,
        told=f"{len(measured) - wrong} of {len(measured)} runs",
    )
    kinds = {str(kind): measured.where(times=kind) for kind in measured.values("times")}
    others = [mode for mode in measured.arms() if mode != SYNCHRONOUS]
    faster, where = min((_faster(kinds[kind], mode), f"{kind}, {mode}") for kind in kinds for mode in others)
    yield Verdict(
        criterion=f"{told}: no overlapping mode takes longer for all than synchronous iterations",
        met=faster >= 1,
        told=f"at worst {faster:.2f} × ({where})",
    )
    kept, where = min((_kept(kinds[kind], mode), f"{kind}, {mode}") for kind in kinds for mode in others)
    yield Verdict(
        criterion=f"{told}: every overlapping mode keeps ≥ 95 % of the lessons of synchronous iterations",
        met=kept >= LESSONS,
        told=f"at worst {kept:.1%} ({where})",
    )


def _faster(measured: Measured, mode: str, name: str = "seconds") -> float:
    return measured.where(SYNCHRONOUS).spread(name).mean / measured.where(mode).spread(name).mean


def _kept(measured: Measured, mode: str) -> float:
    return measured.where(mode).spread("lessons").mean / measured.where(SYNCHRONOUS).spread("lessons").mean


def _panel(title: str, measured: Measured) -> Panel:
    places = dict(zip(measured.arms(), (0.0, 1.0, 2.0, 4.0), strict=True))
    series = tuple(
        Series(
            name=str(kind),
            points=tuple(
                (place, measured.where(mode, times=kind).spread("most_s")) for mode, place in places.items()
            ),
        )
        for kind in measured.values("times")
    )
    x = "batches in flight (0: synchronous)"
    return Panel(title=title, x=x, y="nine in ten applied after, s", series=series, log_y=True)
