"""The tables, the criterion and the panels of ``scale``."""

from collections.abc import Iterator, Mapping
from itertools import product

from combee_experiments.arms.learning import BUDGET_TOKENS
from combee_experiments.running.cells import Measured
from combee_experiments.running.report import Panel, Report, Table, Verdict, series_by
from combee_experiments.running.setup import Setup

POINTS = 5.0
JUDGED_FROM = 40
"""Batch size that the largest one is compared with."""
COLUMNS = (
    *("n", "tree", "groups", "levels", "calls", "wall time, s"),
    *("lessons kept", "reflections verified", "reflections in the playbook"),
)
SHOWN = (("lessons kept", "lessons"), ("reflections kept", "kept"), ("wall time, s", "seconds"))
STANDIN = (
    "The reflections are the stand-in's, also where a real model aggregates them. Lessons that grow with n are about"
    " generated quantities."
)
WHOLE = (
    "All of n is one batch on an empty playbook, but where batches of 2,000 are named: more the product does not put"
    " into one (COMBEE_BATCH_SIZE). The playbook's token budget is lifted."
)
KEPT = (
    "Lessons kept are the share of the conventions there are that the last version holds; reflections verified, the"
    " share that the audit finds in what the model wrote; in the playbook, also what code put in."
)
BOUND = (
    "The bound of 4,000 tokens was chosen knowing that the stand-in loses half at 1,430: at any n it keeps groups as"
    " small as the paper's are at n = 40. What bound suits a real model has to be measured on that model."
)


def report_on(setup: Setup, measured: Measured, *, judged: Mapping[str, str]) -> Report:
    """Return what was found; ``judged`` are trees, and what each is when n is small."""
    families = [str(one) for one in measured.values("family")]
    return Report(
        tables=tuple(_table(family, measured.where(family=family)) for family in families),
        verdicts=tuple(_verdicts(measured, judged)),
        panels=tuple(
            _panel(setup, measured.where(family=family), family, *of) for family in families for of in SHOWN
        ),
        remarks=(STANDIN, WHOLE, KEPT, BOUND),
    )


def _panel(setup: Setup, measured: Measured, family: str, told: str, number: str) -> Panel:
    return Panel(
        title=family,
        x="reflections in the batch",
        y=f"{told}, {setup.concurrency} calls at once" if number == "seconds" else told,
        series=series_by(measured, "reflections", number),
        log_x=True,
        log_y=number == "seconds",
    )


def _table(family: str, measured: Measured) -> Table:
    sizes = ((int(size), measured.where(reflections=size)) for size in measured.values("reflections"))
    rows = tuple(_row(size, arm, found.where(arm)) for size, found in sizes for arm in found.arms())
    return Table(
        title=family,
        columns=(*COLUMNS, f"lessons within {BUDGET_TOKENS:,} tokens"),
        rows=rows,
        note="* The result was larger than a record may be and was cut as the service cuts it.",
    )


def _row(size: int, arm: str, measured: Measured) -> tuple[str, ...]:
    cut = "*" if measured.spread("shortened").high else ""
    return (
        f"{size:,}",
        arm,
        measured.spread("groups").told(0),
        measured.spread("levels").told(0),
        measured.spread("calls").told(0),
        measured.spread("seconds").told(0),
        measured.spread("lessons").told(3) + cut,
        measured.spread("verified").told(2),
        measured.spread("kept").told(2),
        measured.spread("lessons_within_budget").told(2),
    )


def _verdicts(measured: Measured, judged: Mapping[str, str]) -> Iterator[Verdict]:
    sizes = sorted(int(one) for one in measured.values("reflections"))
    if len(sizes) < 2:  # noqa: PLR2004 - nothing to compare
        return
    most = sizes[-1]
    least = max((size for size in sizes[:-1] if size <= JUDGED_FROM), default=sizes[0])
    for family, (told, number), (arm, below) in product(measured.values("family"), SHOWN[:2], judged.items()):
        found = measured.where(family=family)
        if many := found.where(arm, reflections=most):
            few, kept = found.where(below, reflections=least).spread(number), many.spread(number)
            gain = round(100 * (kept.mean - few.mean), 6)
            yield Verdict(
                criterion=f"{family}, {arm}: {told} at n = {most:,} at most 5 points below n = {least}",
                met=gain >= -POINTS,
                told=f"{few.told(3)} → {kept.told(3)}: {gain:+.1f} points",
            )
