"""``price``: what curators' calls cost for each lesson kept, next to ACE's and GEPA's releases on the same stream.

The stream: a playbook of other lessons, and 150 reflections that say 30 lessons, in batches of 40.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from random import Random

from combee.adapters.ports import FatalError
from combee.core.batching.limits import PRODUCT
from combee.core.formats.intake import verdict
from combee.core.methods import gepa
from combee.scan.head_start import HeadStart
from combee_experiments.arms.arms import ADAPTIVE, Arm
from combee_experiments.arms.learning import iterate
from combee_experiments.arms.material import reflections
from combee_experiments.arms.tails import Pace
from combee_experiments.data.generated import filled
from combee_experiments.data.samples import PLAYBOOK, Data, family
from combee_experiments.price import releases
from combee_experiments.price.report import (
    ACE,
    APART,
    COMBEE,
    GEPA,
    GEPA_GROUPS,
    HEAD_START,
    IN_A_ROW,
    NO_MISTAKES,
    ONE_COPY,
    OVERLOADED,
    REWORDED,
    ROLES,
    report_on,
)
from combee_experiments.price.server import CachingServer
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Report
from combee_experiments.running.setup import Setup
from combee_experiments.running.virtual_time import LoopClock
from combee_experiments.scoring.lessons import lessons_of
from combee_schemas.base import Usage
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.trace import Trace
from combee_sim.inprocess import SimulatedModel
from combee_sim.law.law import Law
from combee_sim.law.rules import IN_FORCE, parse_law
from combee_sim.modes import NO_MODES, NOTICED, Modes

REFLECTIONS, LESSONS, BATCH_SIZE = 150, 30, 40
BUDGET_TOKENS = 16_000
STARTS = (13_400, 15_900)
"""Tokens of the playbook at the start: with room for the stream's lessons, and full, so that batches evict."""
PAUSES = {IN_A_ROW: 0.0, APART: 3_600.0}
"""Seconds between batches."""
ONCE = replace(ADAPTIVE, policy=PRODUCT.model_copy(update={"copies": 1}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """How the stand-in fails."""

    law: Law
    modes: Modes = NO_MODES


EXACT = Law(half_tokens=math.inf, steepness=1.0)
MODELS: Mapping[str, Circumstances] = {
    NO_MISTAKES: Circumstances(law=EXACT),
    REWORDED: Circumstances(law=EXACT, modes=Modes(paraphrase=NOTICED)),
    OVERLOADED: Circumstances(law=parse_law(IN_FORCE)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """What a curator gets, and the server that answers it."""

    server: CachingServer
    begin: Playbook
    made: Sequence[Reflection]
    records: Sequence[Reflection]
    """The same runs as GEPA's records."""
    pause_s: float
    seed: int


Curating = Callable[[Stream], Awaitable[tuple[str, ...]]]
"""Lets a curator learn the stream; returns what it keeps."""


async def _combee(stream: Stream, *, arm: Arm, starts_first: bool = False) -> tuple[str, ...]:
    async def ready(_: Playbook, start: int, end: int) -> Sequence[Reflection]:
        await asyncio.sleep(stream.pause_s if start else 0.0)
        return stream.made[start:end]

    learnt = await iterate(
        stream.server,
        ready,
        len(stream.made),
        arm,
        BATCH_SIZE,
        budget_tokens=BUDGET_TOKENS,
        begin=stream.begin,
        head_start=HeadStart(LoopClock()) if starts_first else None,
    )
    return learnt.texts


async def _ace(stream: Stream) -> tuple[str, ...]:
    return await releases.ace(stream.server, stream.begin, stream.made)


async def _gepa(stream: Stream) -> tuple[str, ...]:
    return await releases.gepa_alone(stream.server, stream.begin, stream.records)


async def _gepa_groups(stream: Stream) -> tuple[str, ...]:
    return await releases.gepa_in_groups(
        stream.server, stream.begin, stream.records, size=BATCH_SIZE, seed=stream.seed
    )


RELEASED: Mapping[str, Curating] = {ACE: _ace, GEPA: _gepa, GEPA_GROUPS: _gepa_groups}
OURS: Mapping[str, Curating] = {
    COMBEE: partial(_combee, arm=ADAPTIVE),
    HEAD_START: partial(_combee, arm=ADAPTIVE, starts_first=True),
    ONE_COPY: partial(_combee, arm=ONCE, starts_first=True),
}


def cells(setup: Setup) -> Iterator[Cell]:
    """Every curator on a playbook with room and on a full one, then ACE's and Combee on models that make mistakes.

    Raises
    ------
    FatalError
        If a real model, a rule or modes were asked for: this experiment goes through those it needs.
    """
    if (setup.law, setup.modes) != (IN_FORCE, NO_MODES) or not setup.simulated:
        raise FatalError(
            "price goes through the stand-in's mistakes itself: leave out --model, --law and --mode"
        )
    planned = [
        *((NO_MISTAKES, start, pause) for start in STARTS for pause in PAUSES),
        *((model, STARTS[-1], IN_A_ROW) for model in (REWORDED, OVERLOADED)),
    ]
    for model, start, pause in planned:
        shown = RELEASED if model == NO_MISTAKES else [ACE]
        for arm, seed in product([*(shown if pause == IN_A_ROW else ()), *OURS], setup.seeds):
            yield Cell.of(arm, seed, model=model, start=start, pause=pause)


def measure(setup: Setup, cell: Cell) -> Numbers:
    """Let one curator learn the stream."""
    fails = MODELS[cell.text("model")]
    count = min(REFLECTIONS, setup.samples or REFLECTIONS)
    data = family(count, quantities=LESSONS)
    made = reflections(replace(setup, modes=fails.modes), data, cell.seed)
    model = SimulatedModel(seed=cell.seed, knowledge=data.knowledge, law=fails.law, modes=fails.modes)
    answering = releases.AceReplies(model) if cell.arm == ACE else model
    stream = Stream(
        server=CachingServer(answering, Pace()),
        begin=filled([], cell.number("start"), Random(cell.seed)),  # noqa: S311 - reproducible, not secret
        made=made,
        records=records(data, made),
        pause_s=PAUSES[cell.text("pause")],
        seed=cell.seed,
    )
    return setup.run(_measured(stream, {**RELEASED, **OURS}[cell.arm], data))


def records(data: Data, made: Sequence[Reflection]) -> tuple[Reflection, ...]:
    """Return the runs behind some reflections as GEPA's records, in the same order."""
    samples = {sample.trace_id: sample for sample in data.train}

    def record(reflection: Reflection) -> Reflection:
        sample = samples[str(reflection.trace_id)]
        trace = Trace(
            trace_id=sample.trace_id,
            playbook=PLAYBOOK,
            task=sample.question,
            feedback=verdict("", sample.target, sample.kind),
            target=sample.target,
        )
        told = gepa.read_reflection(trace, (), {})
        return Reflection(reflection_id=reflection.reflection_id, playbook=PLAYBOOK, **told)

    return tuple(map(record, made))


async def _measured(stream: Stream, curating: Curating, data: Data) -> Numbers:
    clock = LoopClock()
    began_s = clock.monotonic()
    texts = await curating(stream)
    batches = -(-len(stream.made) // BATCH_SIZE)
    idle_s = stream.pause_s * (batches - 1)
    lessons, usage = lessons_of(data), stream.server.usage
    spent = sum(usage.values(), Usage())
    return {
        "lessons": len(lessons.kept(texts)),
        "lessons_there": len(lessons.kept(one.key_insight for one in stream.made)),
        "entries": len(texts),
        "calls": spent.calls,
        "batch_s": (clock.monotonic() - began_s - idle_s) / batches,
        **_tokens("all", spent),
        **{name: number for role in ROLES for name, number in _tokens(role, usage[role]).items()},
    }


def _tokens(name: str, usage: Usage) -> Numbers:
    return {
        f"{name}_in": usage.tokens_in,
        f"{name}_cached": usage.cached_tokens,
        f"{name}_out": usage.tokens_out,
    }


def report(setup: Setup, measured: Measured) -> Report:
    """Show prices next to ACE's, and decide the criteria."""
    del setup
    return report_on(measured)
