"""The tables and criteria of ``scope``, for one set of data."""

from collections.abc import Iterator
from statistics import fmean

from combee_experiments.running.cells import Measured
from combee_experiments.running.paired import difference
from combee_experiments.running.report import Panel, Report, Series, Table, Verdict

WHOLE, AGENTS = "whole playbook", "20 entries, agents 2,000 tokens"
NONE, PARAPHRASE = "none", "paraphrase"
MOST_COST = 0.5
MOST_WORDINGS = 1.1
"""Times those of today: the criteria, written down before the first run.

With 70,000 tokens at the start they decide whether the setting stays: 20 or 40 entries must meet all three.
"""
WHO = (("reflect", "reflector"), ("update", "curators"), ("agents", "agents"))
ITERATION = (
    "An iteration is 40 reflector's calls and the update; agents' own calls are shown apart, not in its cost. "
    "Tokens and cost are of one iteration, means over four iterations and the seeds; cost in thousands, a token read "
    "counting 1, one read from the cache 0.1, one written 4 (simulated prefix cache: at least 1,024 tokens, and "
    "nothing is shared by calls that run at once)."
)
START = (
    "Each run begins with a playbook of about 14,000 or 70,000 tokens: half of the data's lessons among "
    "conventions of other quantities. At 14,000 nothing is evicted; of 70,000 in short entries a version has no room "
    "for all. The reflector reads what the product gives it: the entries that the agent used, "
    "else those nearest to the task, 2,000 tokens at most."
)
RULES = (
    "Under a counting rule that charges the playbook (in_steps, exact_text, lessons_only) a call that reads less "
    "of it keeps more; under without_playbook only tokens can be saved."
)


def report_on(name: str, measured: Measured) -> Report:
    """Return what was found on one set of data, with one size of the playbook at the start."""
    return Report(
        tables=(_cost(name, measured), _kept(name, measured)),
        verdicts=tuple(_verdicts(name, measured)),
        panels=(_panel(name, measured),),
        remarks=(ITERATION, START, RULES),
    )


def _cost(name: str, everything: Measured) -> Table:
    law, mode, measured = _places(everything)[0]
    columns = (
        "arm",
        *(f"{name}: read (cached) / written" for _, name in WHO),
        "cost",
        "of today's",
        "with the agents'",
    )
    rows = tuple(
        (
            arm,
            *(_tokens(measured.where(arm), who) for who, _ in WHO),
            f"{measured.where(arm).spread('cost').mean / 1e3:,.0f}",
            f"{_ratio(measured, arm):.2f}",
            f"{_ratio(measured, arm, agents=True):.2f}",
        )
        for arm in measured.arms()
    )
    return Table(
        title=f"{name}: tokens and cost of one iteration, {law}, mode {mode}",
        columns=columns,
        rows=rows,
        note=ITERATION,
    )


def _tokens(measured: Measured, who: str) -> str:
    read, cached, written = (measured.spread(f"{who}_{part}").mean for part in ("in", "cached", "out"))
    return f"{read:,.0f} ({cached:,.0f}) / {written:,.0f}"


def _ratio(measured: Measured, arm: str, *, agents: bool = False) -> float:
    """Return the cost of an iteration, or of it and its agents, as a share of today's."""
    ours, today = (
        found.spread("cost").mean + (found.spread("agents_cost").mean if agents else 0.0)
        for found in (measured.where(arm), measured.where(WHOLE))
    )
    return ours / today


def _kept(name: str, measured: Measured) -> Table:
    there = max(numbers["lessons_there"] for _, numbers in measured)
    before = fmean(numbers["lessons_before"] for _, numbers in measured)
    rows = tuple(
        (
            law,
            mode,
            arm,
            found.where(arm).spread("lessons").told(1),
            "" if arm == WHOLE else _gain(found, arm),
            found.where(arm).spread("wordings_per_lesson").told(2),
            found.where(arm).spread("entries").told(0),
        )
        for law, mode, found in _places(measured)
        for arm in found.arms()
    )
    return Table(
        title=f"{name}: lessons kept of {there:.0f} ({before:.0f} of them from the start)",
        columns=("rule", "mode", "arm", "lessons", "against the whole", "wordings per lesson", "entries"),
        rows=rows,
        note="Against the whole: the mean difference, paired by seed, and its 95 % interval.",
    )


def _places(measured: Measured) -> list[tuple[str, str, Measured]]:
    """Return each rule and mode with what was measured there, in the order of the plan."""
    places = dict.fromkeys((cell.text("law"), cell.text("mode")) for cell, _ in measured)
    return [(law, mode, measured.where(law=law, mode=mode)) for law, mode in places]


def _gain(found: Measured, arm: str) -> str:
    return difference(found.where(arm).by_seed("lessons"), found.where(WHOLE).by_seed("lessons")).told()


def _verdicts(name: str, measured: Measured) -> Iterator[Verdict]:
    for arm in measured.arms():
        if arm not in (WHOLE, AGENTS):
            yield from _decided(f"{name}, {arm}", arm, _places(measured))


def _decided(name: str, arm: str, places: list[tuple[str, str, Measured]]) -> Iterator[Verdict]:
    costs = {f"{law}, {mode}": _ratio(found, arm) for law, mode, found in places}
    gains = {
        f"{law}, {mode}": difference(
            found.where(arm).by_seed("lessons"), found.where(WHOLE).by_seed("lessons")
        )
        for law, mode, found in places
    }
    wordings = {
        f"{law}, {mode}": found.where(arm).spread("wordings_per_lesson").mean
        / found.where(WHOLE).spread("wordings_per_lesson").mean
        for law, mode, found in places
    }
    dearest = max(costs, key=costs.__getitem__)
    yield Verdict(
        criterion=f"{name}: an iteration costs at most {MOST_COST:g} of today's under every rule and mode",
        met=costs[dearest] <= MOST_COST,
        told=f"worst {costs[dearest]:.2f} ({dearest})",
    )
    least = min(gains, key=lambda place: gains[place].mean)
    lower = sum(gain.mean < 0 for gain in gains.values())
    yield Verdict(
        criterion=f"{name}: on average no fewer lessons than today under any rule and mode",
        met=not lower,
        told=f"fewer in {lower} of {len(gains)}; worst {gains[least].told()} ({least})",
    )
    most = max(wordings, key=wordings.__getitem__)
    yield Verdict(
        criterion=f"{name}: at most {MOST_WORDINGS:g} × today's wordings per lesson under every rule and mode",
        met=wordings[most] <= MOST_WORDINGS,
        told=f"worst {wordings[most]:.2f} × ({most})",
    )


def _panel(name: str, measured: Measured) -> Panel:
    series = tuple(
        Series(
            name=arm,
            points=tuple(
                (found.where(arm).spread("cost").mean / 1e3, found.where(arm).spread("lessons"))
                for _, mode, found in _places(measured)
                if mode == NONE and found.where(arm)
            ),
            style="points",
        )
        for arm in measured.arms()
    )
    return Panel(title=name, x="cost of an iteration, thousands", y="lessons kept", series=series)
