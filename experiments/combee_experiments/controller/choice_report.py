"""What the controller chose, with and without it, and whether the choice lies on the front of the sweep."""

from collections.abc import Iterator, Sequence

from combee_experiments.controller.front import Point, Rival, rivals
from combee_experiments.running.cells import Measured
from combee_experiments.running.report import Table, Verdict

FIXED = "fixed"
BY_ITERATIONS = "controller, whole iterations"
BY_VERSIONS = "controller, as deployed"
DELAYS = (("seconds", "wall time"), ("epoch_s", "T(b)"))
DEFAULT = 40
"""The batch size of who has no controller."""


def point(found: Measured, delay: str, name: str) -> Point:
    """Return one way to choose sizes over its seeds."""
    return Point(name=name, delay_s=found.spread(delay), accuracy=found.spread("accuracy"))


def points(measured: Measured, delay: str) -> list[Point]:
    """Return the sweep."""
    swept = measured.where(FIXED)
    return [point(swept.where(batch_size=size), delay, str(size)) for size in swept.values("batch_size")]


def choices(title: str, ways: Sequence[tuple[str, Measured]]) -> Table:
    """Return each controller's choice, and the default size without a controller."""
    columns = (
        *("aggregation", "controller", "batch size", "α", "R²", "wall time, s", "T(b), s", "lessons"),
        *("accuracy", *(f"beaten in {told} by" for _, told in DELAYS)),
        *("profiling epoch, s", "its accuracy"),
    )
    rows = tuple(
        (way, arm, *row)
        for way, measured in ways
        for arm, row in (*_without(measured), *(_with(arm, found, measured) for arm, found in arms(measured)))
    )
    return Table(title=title, columns=columns, rows=rows)


def _without(measured: Measured) -> Iterator[tuple[str, tuple[str, ...]]]:
    if found := measured.where(FIXED, batch_size=DEFAULT):
        yield "none: the default", (str(DEFAULT), "–", "–", *_told(found, measured, str(DEFAULT)), "–", "–")


def _with(arm: str, found: Measured, measured: Measured) -> tuple[str, tuple[str, ...]]:
    chosen = found.spread("chosen").told(0)
    fit = (found.spread(name).told(2) for name in ("alpha", "r_squared"))
    profiled = (found.spread("profiled_seconds").told(0), found.spread("profiled_accuracy").told(3))
    return arm.removeprefix("controller, "), (chosen, *fit, *_told(found, measured, chosen), *profiled)


def _told(found: Measured, measured: Measured, name: str) -> tuple[str, ...]:
    beaten = (rivals(point(found, delay, name), points(measured, delay)) for delay, _ in DELAYS)
    return (
        *(found.spread(delay).told(0) for delay, _ in DELAYS),
        found.spread("lessons").told(),
        found.spread("accuracy").told(3),
        *(", ".join(map(_marked, one)) or "none" for one in beaten),
    )


def _marked(rival: Rival) -> str:
    mark = "?" if not rival.beats else "" if rival.is_clear else "~"
    return f"{mark}{rival.name}"


def arms(measured: Measured) -> Iterator[tuple[str, Measured]]:
    """Return the cells of each controller."""
    return ((arm, measured.where(arm)) for arm in (BY_ITERATIONS, BY_VERSIONS))


def verdicts(told: str, measured: Measured) -> Iterator[Verdict]:
    """Decide the criterion for each controller."""
    delay, named = DELAYS[0]
    for arm, found in arms(measured):
        choice = point(found, delay, found.spread("chosen").told(0))
        against = rivals(choice, points(measured, delay))
        yield Verdict(
            criterion=f"{told}: {arm}: its choice lies on the Pareto front of {named} and accuracy",
            met=not any(one.beats for one in against),
            told="; ".join((str(choice), *_against(against))),
        )


def _against(found: Sequence[Rival]) -> Iterator[str]:
    said = {
        "beaten by": [one for one in found if one.is_clear],
        "beaten, within the noise, by": [one for one in found if one.beats and not one.is_clear],
        "not told from beaten by": [one for one in found if not one.beats],
    }
    return (f"{how} {', '.join(map(str, some))}" for how, some in said.items() if some)
