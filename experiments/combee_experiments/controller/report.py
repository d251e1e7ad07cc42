"""The tables, criteria and panels of ``controller``, for one set of data."""

from collections.abc import Iterator, Mapping

from combee_experiments.controller.choice_report import (
    BY_ITERATIONS,
    BY_VERSIONS,
    DELAYS,
    FIXED,
    arms,
    choices,
    points,
    verdicts,
)
from combee_experiments.controller.front import Point, front
from combee_experiments.data import paper
from combee_experiments.data.samples import Data
from combee_experiments.running.cells import Measured, Spread
from combee_experiments.running.report import Panel, Report, Series, Table
from combee_experiments.running.setup import Setup

WAYS: Mapping[str, tuple[str, bool]] = {
    "ACE, carry off": ("ace", False),
    "ACE, carry on": ("ace", True),
    "GEPA": ("gepa", True),
}
"""Way to aggregate → method, carry."""
TIMES = (
    "An agent's run takes 20 calls' time (log-normal, sigma 0.4), 64 run at once; an update call takes the latency "
    "plus 1 s per 5,000 tokens read and per 60 written: without that, larger prompts would cost no time."
)
REAL = "Agents take no time here: their reflections were made before. Delays are those of the updates."
EPOCHS = (
    "T(b) = d(b)·N/b is the paper's: it does not charge the remainder of an epoch as a whole iteration, which wall "
    "time does. The criterion is decided by wall time."
)
ARMS = (
    f"“{BY_ITERATIONS}” profiles as the paper does, from the start of the agents to the version. “{BY_VERSIONS}” is "
    "the control service itself, which sees from a batch's closing to its version. Each row with a controller has "
    "the epoch at the size chosen after profiling; the epoch that profiled is shown next to it."
)
NOISY = (
    "A point beats another if it is no worse in both seed means and better in one. It does so within the noise, "
    "marked ~, if one of the two differences is under two standard errors (paired by seed). ? marks what is clearly "
    "better in one and behind in the other by less than that: on the means it beats nothing."
)


def report_on(setup: Setup, data: Data, measured: Measured) -> Report:
    """Return what was found on one set of data."""
    ways = [(way, measured.where(way=way)) for way in WAYS]
    return Report(
        tables=(
            choices(f"{data.name}: with and without the controller", ways),
            *(_sweep(f"{data.name}, {way}: fixed batch sizes", found) for way, found in ways),
            *_published(data),
        ),
        verdicts=tuple(verdict for way, found in ways for verdict in verdicts(f"{data.name}, {way}", found)),
        panels=tuple(_panel(f"{data.name}, {way}", found) for way, found in ways),
        remarks=(TIMES if setup.simulated else REAL, EPOCHS, ARMS, NOISY),
    )


def _sweep(title: str, measured: Measured) -> Table:
    fronts = [{one.name for one in front(points(measured, delay))} for delay, _ in DELAYS]
    rows = []
    for size in measured.where(FIXED).values("batch_size"):
        found = measured.where(FIXED, batch_size=size)
        rows.append(
            (
                str(size),
                *(found.spread(name).told(0) for name in ("seconds", "epoch_s")),
                found.spread("delay_s").told(),
                found.spread("lessons").told(),
                found.spread("accuracy").told(3),
                *("yes" if str(size) in one else "" for one in fronts),
            )
        )
    columns = ("batch size", "wall time, s", "T(b), s", "d(b), s", "lessons kept", "accuracy")
    return Table(
        title=title, columns=(*columns, *(f"on the front of {told}" for _, told in DELAYS)), rows=tuple(rows)
    )


def _published(data: Data) -> Iterator[Table]:
    """Return the paper's sweep of GEPA with its own choice, whose front is found in the same way."""
    swept = [
        Point(name=name, delay_s=Spread(values=(seconds,)), accuracy=Spread(values=(accuracy,)))
        for name, seconds, accuracy in paper.sweep(data.kind)
    ]
    if swept:
        best = front(swept)
        yield Table(
            title=f"{data.name}: the paper's GEPA, for comparison",
            columns=("batch size", "seconds", "accuracy", "on the front"),
            rows=tuple(
                (one.name, one.delay_s.told(0), one.accuracy.told(3), "yes" if one in best else "")
                for one in swept
            ),
            note="Read off its figure; fixed sizes are naive there, the chosen one is Combee's.",
        )


def _panel(title: str, measured: Measured) -> Panel:
    swept = measured.where(FIXED)
    sizes = [swept.where(batch_size=size) for size in swept.values("batch_size")]
    line = tuple((size.spread("seconds").mean, size.spread("accuracy")) for size in sizes)
    chosen = tuple(
        Series(name=arm, points=((found.spread("seconds").mean, found.spread("accuracy")),), style="points")
        for arm, found in arms(measured)
    )
    series = (Series(name="fixed sizes", points=line, style="points"), *chosen)
    return Panel(title=title, x="wall time, s", y="accuracy", series=series, log_x=True)
