"""``speed``: whole iterations, agents and reflector included: sequential, naive and Combee."""

from collections.abc import Iterator, Sequence

from combee_experiments.arms.agents import reflect_all
from combee_experiments.arms.arms import ADAPTIVE, ARMS, NAIVE, PLAIN
from combee_experiments.arms.learning import iterate
from combee_experiments.arms.material import exam
from combee_experiments.data import paper
from combee_experiments.data.samples import Data, subset
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Panel, Report, Table, Verdict, points_by_arm
from combee_experiments.running.setup import Setup
from combee_schemas.base import Usage
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection

SIZES = (40, 100)
SEQUENTIAL = "sequential"
COLUMNS = (
    *("arm", "batch size", "wall time, s", "faster", "calls", "update calls"),
    *("tokens in", "tokens out", "cost", "lessons", "accuracy"),
)
WALL = 0.15
WHOLE = (
    "An iteration is one agent call and one reflector call per sample, then the update; the paper's agents take many "
    "calls per sample, so its times lie closer to the agents' and the update weighs less in them."
)


def cells(setup: Setup) -> Iterator[Cell]:
    """Sequential once; the others at each batch size there are samples for."""
    for data in setup.data:
        fitting = [size for size in SIZES if size <= len(data.train)]
        arms = [(SEQUENTIAL, 1), *((arm.name, size) for size in fitting for arm in (NAIVE, PLAIN, ADAPTIVE))]
        for arm, size in arms:
            for seed in setup.seeds:
                yield Cell.of(arm, seed, data=data.name, batch_size=size)


def measure(setup: Setup, cell: Cell) -> Numbers:
    """Run one epoch: every sample once."""
    return setup.run(_measure(setup, setup.named(cell.text("data")), cell))


async def _measure(setup: Setup, data: Data, cell: Cell) -> Numbers:
    samples = subset(data.train, None, cell.seed)
    arm = NAIVE if cell.arm == SEQUENTIAL else ARMS[cell.arm]
    read = list[Reflection]()
    async with setup.open_model(cell.seed) as model:
        paced = setup.paced(model, cell.seed)

        async def reflecting(playbook: Playbook, start: int, end: int) -> Sequence[Reflection]:
            made = await reflect_all(paced, playbook, samples[start:end])
            read.extend(made)
            return made

        learnt = await iterate(paced, reflecting, len(samples), arm, cell.number("batch_size"))
        known = await exam(setup, model, data, learnt, read)
    numbers, agents = learnt.numbers(), sum((one.usage for one in read), Usage())
    return {
        **numbers,
        **known,
        "update_calls": numbers["calls"],
        "calls": numbers["calls"] + agents.calls,
        "tokens_in": numbers["tokens_in"] + agents.tokens_in,
        "cached_tokens": numbers["cached_tokens"] + agents.cached_tokens,
        "tokens_out": numbers["tokens_out"] + agents.tokens_out,
    }


def report(setup: Setup, measured: Measured) -> Report:
    """Show what each arm takes and leaves, next to the paper's times."""
    ours = tuple(_table(setup, data, measured.where(data=data.name)) for data in setup.data)
    return Report(
        tables=(*ours, _paper()),
        verdicts=tuple(
            verdict for data in setup.data for verdict in _verdicts(data, measured.where(data=data.name))
        ),
        panels=tuple(_panel(data, measured.where(data=data.name)) for data in setup.data),
        remarks=(WHOLE,),
    )


def _table(setup: Setup, data: Data, measured: Measured) -> Table:
    alone = measured.where(SEQUENTIAL).spread("seconds").mean
    rows = tuple(_row(setup, found, arm, size, alone) for arm, size, found in measured.ways())
    prices = (setup.prices.price_in, setup.prices.price_cached_in, setup.prices.price_out)
    told = ", ".join(
        f"{price:g} {name}"
        for name, price in zip(("in", "cached in", "out"), prices, strict=True)
        if price is not None
    )
    priced = f"Cost at {told} per million tokens."
    return Table(
        title=f"{data.name}: one epoch of {len(data.train)} samples",
        columns=COLUMNS,
        rows=rows,
        note=priced if any(prices) else "No prices were given, so no cost.",
    )


def _row(setup: Setup, measured: Measured, arm: str, size: int, alone: float) -> tuple[str, ...]:
    tokens_in, tokens_out = measured.spread("tokens_in"), measured.spread("tokens_out")
    names = ("tokens_in", "cached_tokens", "tokens_out")
    cost = setup.prices.cost(Usage(**{name: round(measured.spread(name).mean) for name in names}))
    return (
        arm,
        str(size),
        measured.spread("seconds").told(0),
        f"{alone / measured.spread('seconds').mean:.1f} ×",
        measured.spread("calls").told(0),
        measured.spread("update_calls").told(0),
        tokens_in.told(0),
        tokens_out.told(0),
        f"{cost:,.2f}" if cost else "–",
        measured.spread("lessons").told(),
        measured.spread("accuracy").told(2),
    )


def _verdicts(data: Data, measured: Measured) -> Iterator[Verdict]:
    alone = measured.where(SEQUENTIAL).spread("seconds").mean
    for arm, size, found in measured.ways():
        if arm in (PLAIN.name, ADAPTIVE.name):
            taken = found.spread("seconds").mean
            yield Verdict(
                criterion=f"{data.name}: {arm} at {size} in ≤ 15 % of the sequential wall time",
                met=taken <= WALL * alone,
                told=f"{taken:,.0f} s of {alone:,.0f} s: {taken / alone:.1%}",
            )


def _paper() -> Table:
    return Table(
        title="The paper's times, for comparison",
        columns=("task", "arm", "batch size", "time", "faster"),
        rows=tuple((task, arm, str(size), time, faster) for task, arm, size, time, faster in paper.TIMES),
        note="The paper states 17.7 ×; the other ratios are its times divided.",
    )


def _panel(data: Data, measured: Measured) -> Panel:
    points = points_by_arm(measured, "seconds", "lessons")
    return Panel(title=data.name, x="wall time, s", y="lessons kept", series=points, log_x=True)
