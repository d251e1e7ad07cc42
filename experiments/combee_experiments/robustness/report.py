"""The tables, criteria and panels of ``robustness``, for one set of data."""

from collections.abc import Iterator

from combee_experiments.arms.arms import ADAPTIVE, NAIVE, PLAIN
from combee_experiments.data.samples import Data
from combee_experiments.running.cells import Measured
from combee_experiments.running.report import Panel, Report, Series, Table, Verdict
from combee_experiments.scoring.lessons import BESIDE

NONE, ALL = "none", "all"
SWEPT = ("correlated=0.01", "correlated=0.03", "correlated=0.3", "contradictions=0.1", "contradictions=0.3")
"""Modes at other rates than usual; no criterion counts them."""
NO_GAIN = "lessons_only"
"""The rule that charges nothing for the text around lessons: what a tree saves is that text."""
SHORT = {NAIVE.name: "naive", PLAIN.name: "plain", ADAPTIVE.name: "adaptive"}
MOST_WORDINGS = 1.1
MOST_INVENTED = 0.10
MOST_PAIRS = 1.0
RULES = (
    "All four counting rules reproduce the paper's row for naive ACE (docs/design/simulation.md). Under lessons_only "
    "a tree is expected to gain nothing; what adaptive gains there is the carry's, which is code, not a model."
)
FAILING = (
    "Modes at their usual rates: paraphrase 0.8, invented 2 per call, correlated 0.1 of the reflections, "
    "contradictions 0.2 of them; checker errs: 0.1 of its judgements, both ways; all: these together. They were set, "
    "not fitted to any model."
)
COUNTED = (
    "Lessons are counted by meaning, and only where a right statement is in. Wordings per lesson: entries with a "
    "right statement per lesson kept. Invented: entries about what does not exist. Wrong: entries that say the "
    "opposite of what is true. A contradicting pair is two meanings about one thing."
)


def report_on(data: Data, measured: Measured) -> Report:
    """Return what was found on one set of data."""
    usual, swept = _parted(measured)
    return Report(
        tables=(_lessons(data, usual), _beside(data, usual), _swept(data, swept)),
        verdicts=tuple(_verdicts(data, usual)),
        panels=tuple(_panel(data, usual, arm) for arm in SHORT),
        remarks=(RULES, FAILING, COUNTED),
    )


def _parted(measured: Measured) -> tuple[Measured, Measured]:
    """Return what was measured under the usual modes, and what under the swept ones."""
    usual = {cell: numbers for cell, numbers in measured if cell.text("mode") not in SWEPT}
    return Measured(usual), Measured({cell: numbers for cell, numbers in measured if cell not in usual})


Place = tuple[str, str, int]
"""Rule, mode, batch size."""


def _places(measured: Measured) -> list[tuple[Place, Measured]]:
    """Return each rule, mode and size with what was measured there, in the order of the plan."""
    places = dict.fromkeys(
        (cell.text("law"), cell.text("mode"), cell.number("batch_size")) for cell, _ in measured
    )
    return [
        ((law, mode, size), measured.where(law=law, mode=mode, batch_size=size)) for law, mode, size in places
    ]


def _lessons(data: Data, measured: Measured) -> Table:
    there = max(numbers["lessons_there"] for _, numbers in measured)
    sizes = measured.values("batch_size")
    failures = dict.fromkeys(place[:2] for place, _ in _places(measured))
    rows = tuple(
        (
            law,
            mode,
            *(
                measured.where(arm, law=law, mode=mode, batch_size=size).spread("lessons").told(1)
                for size in sizes
                for arm in SHORT
            ),
        )
        for law, mode in failures
    )
    return Table(
        title=f"{data.name}: lessons kept of {there:.0f}",
        columns=("rule", "mode", *(f"{arm}, {size}" for size in sizes for arm in SHORT.values())),
        rows=rows,
    )


def _beside(data: Data, measured: Measured) -> Table:
    rows = tuple(
        (
            *map(str, place),
            *(
                " / ".join(f"{found.where(arm).spread(number).mean:.{digits}f}" for arm in SHORT)
                for _, number, digits in BESIDE
            ),
        )
        for place, found in _places(measured)
        if place[1] != NONE
    )
    return Table(
        title=f"{data.name}: what else is in the playbook ({' / '.join(SHORT.values())})",
        columns=("rule", "mode", "batch size", *(name for name, *_ in BESIDE)),
        rows=rows,
        note="Means over the seeds.",
    )


def _swept(data: Data, measured: Measured) -> Table:
    shown = (("lessons", "lessons", 1), ("entries", "entries", 0), *BESIDE[2:])
    rows = tuple(
        (
            mode,
            str(size),
            *(
                " / ".join(f"{found.where(arm).spread(number).mean:.{digits}f}" for arm in SHORT)
                for _, number, digits in shown
            ),
        )
        for (_, mode, size), found in _places(measured)
    )
    return Table(
        title=f"{data.name}: more and fewer reflections that invent or contradict ({' / '.join(SHORT.values())})",
        columns=("mode", "batch size", *(name for name, *_ in shown)),
        rows=rows,
        note="Means over the seeds, under the rule in force.",
    )


def _verdicts(data: Data, measured: Measured) -> Iterator[Verdict]:
    places = _places(measured)
    yield _ahead(
        f"{data.name}: adaptive keeps at least as many lessons as plain under every rule and mode",
        places,
        PLAIN.name,
    )
    gaining = [(place, found) for place, found in places if place[0] != NO_GAIN]
    others = f"{data.name}: … and as naive, under every rule but {NO_GAIN}"
    yield _ahead(others, gaining, NAIVE.name)
    yield _no_gain(data, [(place, found) for place, found in places if place[:2] == (NO_GAIN, NONE)])
    yield _at_most(
        f"{data.name}: at most {MOST_WORDINGS} wordings per lesson, adaptive, with paraphrase",
        [
            (place, found.where(ADAPTIVE.name).spread("wordings_per_lesson").mean)
            for place, found in _under(places, "paraphrase")
        ],
        MOST_WORDINGS,
    )
    yield _at_most(
        f"{data.name}: at most {MOST_INVENTED:.0%} of the entries are invented, adaptive, with invented lessons",
        [(place, _share_invented(found)) for place, found in _under(places, "invented", "correlated")],
        MOST_INVENTED,
    )
    yield _at_most(
        f"{data.name}: at most {MOST_PAIRS:g} contradicting pair, adaptive, with contradictions",
        [
            (place, found.where(ADAPTIVE.name).spread("contradicted").mean)
            for place, found in _under(places, "contradictions")
        ],
        MOST_PAIRS,
    )


def _under(places: list[tuple[Place, Measured]], *modes: str) -> Iterator[tuple[Place, Measured]]:
    return ((place, found) for place, found in places if place[1] in {*modes, ALL})


def _share_invented(found: Measured) -> float:
    ours = found.where(ADAPTIVE.name)
    return ours.spread("invented").mean / max(1.0, ours.spread("entries").mean)


def _ahead(criterion: str, places: list[tuple[Place, Measured]], other: str) -> Verdict:
    """Decide whether adaptive is nowhere behind another arm, on the mean over the seeds."""
    gains = [
        (found.where(ADAPTIVE.name).spread("lessons").mean - found.where(other).spread("lessons").mean, place)
        for place, found in places
    ]
    behind = sum(gain < 0 for gain, _ in gains)
    worst, where = min(gains)
    return Verdict(
        criterion=criterion,
        met=not behind,
        told=f"behind in {behind} of {len(gains)}; worst {worst:+.1f} ({_told(where)})",
    )


def _no_gain(data: Data, places: list[tuple[Place, Measured]]) -> Verdict:
    """State what two plain levels gain where nothing is to be gained."""
    gains = [
        (
            found.where(PLAIN.name).spread("lessons").mean - found.where(NAIVE.name).spread("lessons").mean,
            place[2],
        )
        for place, found in places
    ]
    return Verdict(
        criterion=f"{data.name}: under {NO_GAIN} the paper's two levels keep as many lessons as naive (not expected)",
        met=all(gain >= 0 for gain, _ in gains),
        told=", ".join(f"{gain:+.1f} at {size}" for gain, size in gains),
    )


def _at_most(criterion: str, figures: list[tuple[Place, float]], most: float) -> Verdict:
    worst, where = max((figure, place) for place, figure in figures)
    return Verdict(criterion=criterion, met=worst <= most, told=f"worst {worst:.2f} ({_told(where)})")


def _told(place: Place) -> str:
    law, mode, size = place
    return f"{law}, mode {mode}, batch size {size}"


def _panel(data: Data, measured: Measured, arm: str) -> Panel:
    sizes = sorted(map(int, measured.values("batch_size")))
    series = tuple(
        Series(
            name=f"{law}, {'no mode' if mode == NONE else 'all modes'}",
            points=tuple(
                (float(size), measured.where(arm, law=law, mode=mode, batch_size=size).spread("lessons"))
                for size in sizes
            ),
        )
        for law in measured.values("law")
        for mode in (NONE, ALL)
    )
    return Panel(title=f"{data.name}: {SHORT[arm]}", x="batch size", y="lessons kept", series=series)
