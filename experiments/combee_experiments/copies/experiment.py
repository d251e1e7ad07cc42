"""``copies``: lessons kept of one batch of 4 to 40, with 1 to 4 copies of each reflection.

With as many copies as ⌊√n⌋ groups each group reads the same: two copies in two groups, three in three. The paper
deals so; one call instead is cheaper, and fewer copies than groups spread the lessons. Each batch is learned alone,
to an empty playbook, from n reflections with n different lessons.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import isqrt

from combee.core.batching.limits import PRODUCT
from combee.core.playbook.operations import lesson_of
from combee_experiments.arms.arms import ADAPTIVE, Arm
from combee_experiments.arms.learning import Learnt, learn
from combee_experiments.arms.material import reflections
from combee_experiments.data.samples import Data
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.paired import difference
from combee_experiments.running.report import Panel, Report, Table, Verdict, joined, series_by
from combee_experiments.running.setup import Setup
from combee_schemas.plan import SmallBatches
from combee_schemas.reflection import Reflection
from combee_sim.family.lessons import key

SIZES = tuple(range(4, 41))
COPIES = (1, 2, 3, 4)
CHECKED = "Combee"
UNCHECKED, ONE_CALL, PAPER = "fewer copies", "one call", "as many copies as groups"
RULES: dict[str, SmallBatches] = {
    CHECKED: "fewer-copies",
    UNCHECKED: "fewer-copies",
    ONE_CALL: "one-call",
    PAPER: "paper",
}
COLUMNS = ("n", "copies", *RULES, "calls", "fewer copies against one copy")


def cells(setup: Setup) -> Iterator[Cell]:
    """Every size and number of copies; the other rules where they deal otherwise."""
    for data, n, copies, arm, seed in product(setup.data, SIZES, COPIES, RULES, setup.seeds):
        if arm in {CHECKED, UNCHECKED} or copies >= isqrt(n):
            yield Cell.of(arm, seed, data=data.name, n=n, copies=copies)


def measure(setup: Setup, cell: Cell) -> Numbers:
    """Learn one batch."""
    settings = {"copies": cell.number("copies"), "small_batches": RULES[cell.arm]}
    arm = replace(ADAPTIVE, policy=PRODUCT.model_copy(update=settings), carry=cell.arm == CHECKED)
    batch = _batch(setup, setup.named(cell.text("data")), cell.seed, cell.number("n"))
    learnt = setup.run(_learned(setup, arm, batch, cell.seed))
    lessons = {key(lesson_of(one)) for one in batch}
    return {"kept": len(lessons.intersection(map(key, learnt.texts))), "calls": learnt.usage.calls}


def _batch(setup: Setup, data: Data, seed: int, n: int) -> Sequence[Reflection]:
    """Return at most n reflections with different lessons."""
    made = (one for one in reflections(setup, data, seed) if lesson_of(one))
    return list({key(lesson_of(one)): one for one in made}.values())[:n]


async def _learned(setup: Setup, arm: Arm, batch: Sequence[Reflection], seed: int) -> Learnt:
    async with setup.open_model(seed) as model:
        return await learn(setup.paced(model, seed), batch, arm, len(batch))


def report(setup: Setup, measured: Measured) -> Report:
    """Compare every number of copies with one copy."""
    return joined(_report_on(data.name, measured.where(data=data.name)) for data in setup.data)


def _report_on(name: str, measured: Measured) -> Report:
    return Report(
        tables=(
            Table(title=f"{name}: lessons kept of a batch", columns=COLUMNS, rows=tuple(_rows(measured))),
        ),
        verdicts=tuple(_verdicts(name, measured)),
        panels=(_panel(name, measured.where(copies=max(COPIES))),),
        remarks=(
            f"{CHECKED} checks its result and carries what is missing; the others are what the model keeps itself.",
        ),
    )


def _rows(measured: Measured) -> Iterator[tuple[str, ...]]:
    for n in measured.values("n"):
        for copies in measured.values("copies"):
            found = measured.where(n=n, copies=copies)
            against = difference(
                found.where(UNCHECKED).by_seed("kept"),
                measured.where(UNCHECKED, n=n, copies=1).by_seed("kept"),
            )
            yield (
                *(str(n), str(copies)),
                *(f"{arm.spread('kept').mean:.1f}" if (arm := found.where(name)) else "" for name in RULES),
                f"{found.where(UNCHECKED).spread('calls').mean:.0f}",
                "" if copies == 1 else against.told(),
            )


def _verdicts(name: str, measured: Measured) -> Iterator[Verdict]:
    for arm, at_most in ((CHECKED, "no batch keeps fewer lessons"), (UNCHECKED, "no interval is below zero")):
        found = measured.where(arm)
        differences = {
            f"n = {n}, {copies} copies": difference(
                found.where(n=n, copies=copies).by_seed("kept"), found.where(n=n, copies=1).by_seed("kept")
            )
            for n in found.values("n")
            for copies in found.values("copies")
            if copies != 1
        }
        worst = min(differences, key=lambda case: differences[case].mean)
        below = [one for one in differences.values() if (one.mean if arm == CHECKED else one.high) < 0]
        yield Verdict(
            criterion=f"{name}, {arm}: {at_most} than with one copy",
            met=not below,
            told=f"{len(below)} of {len(differences)} below; the worst is {worst}: {differences[worst].told()}",
        )


def _panel(name: str, measured: Measured) -> Panel:
    title, series = f"{name}, {max(COPIES)} copies", series_by(measured, "n", "kept")
    return Panel(title=title, x="reflections in a batch", y="lessons kept", series=series)
