"""``shuffle``: how many copies, shuffled or not, in distinct groups or not, and in how many groups."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import isqrt

from combee.core.batching import shuffle
from combee_experiments.arms.arms import PAPER, PLAIN, Deal, shuffled, unshuffled
from combee_experiments.arms.material import measure_updates
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Report, joined
from combee_experiments.running.setup import Setup
from combee_experiments.shuffling.report import DISTINCT, SHUFFLED, UNSHUFFLED, report_on
from combee_schemas.reflection import Reflection
from combee_sim.family.lessons import key

BATCH_SIZE = 100
COPIES = (1, 2, 3)
DEALINGS: Mapping[str, Deal] = {
    UNSHUFFLED: unshuffled,
    SHUFFLED: shuffled,
    DISTINCT: shuffle.deal,
}
"""``distinct`` is the product's, ``shuffled`` the paper's."""
MIXED = "mixed"
ORDERS = (MIXED, "by topic")
AROUND = (0.1, 0.2, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0)
"""Groups, in multiples of √n."""


def cells(setup: Setup) -> Iterator[Cell]:
    """Dealings by copies, order and carry; then numbers of groups; on each set of data."""
    for data in setup.data:
        size = min(BATCH_SIZE, len(data.train))
        for arm, order, copies, groups, carry in _settings(isqrt(size)):
            for seed in setup.seeds:
                yield Cell.of(
                    arm, seed, data=data.name, order=order, copies=copies, groups=groups, carry=int(carry)
                )


def _settings(root: int) -> Iterator[tuple[str, str, int, int, bool]]:
    carries = (False, True)
    for order, copies, carry, arm in product(ORDERS, COPIES, carries, DEALINGS):
        yield arm, order, copies, root, carry
    around = {max(1, round(factor * root)) for factor in AROUND}
    for groups, carry in product(sorted(around - {root}), carries):
        yield DISTINCT, MIXED, 2, groups, carry


def measure(setup: Setup, cell: Cell) -> Numbers:
    """Learn with two levels, dealt as the cell says."""
    data = setup.named(cell.text("data"))
    arm = replace(
        PLAIN,
        name=cell.arm,
        policy=PAPER.model_copy(update={"copies": cell.number("copies")}),
        carry=bool(cell.number("carry")),
        groups=cell.number("groups"),
        deal=DEALINGS[cell.arm],
    )
    size = min(BATCH_SIZE, len(data.train))
    arrange = tuple if cell.text("order") == MIXED else partial(by_topic, batch_size=size)
    return measure_updates(setup, data, arm, size, cell.seed, arrange=arrange)


def by_topic(reflections: Sequence[Reflection], *, batch_size: int) -> list[Reflection]:
    """Return the same batches, in each of which reflections with one lesson came one after the other."""
    starts = range(0, len(reflections), batch_size)
    return [
        reflection
        for start in starts
        for reflection in sorted(
            reflections[start : start + batch_size], key=lambda made: key(made.key_insight)
        )
    ]


def report(setup: Setup, measured: Measured) -> Report:
    """Compare dealings and numbers of groups."""
    del setup
    names = [str(name) for name in measured.values("data")]
    return joined(report_on(name, measured.where(data=name)) for name in names)
