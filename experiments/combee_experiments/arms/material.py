"""The reflections that all arms read, and what one arm makes of them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from random import Random

from pydantic import ValidationError

from combee.adapters.ports import LanguageModel
from combee.core.formats.intake import Sample
from combee.core.playbook.versions import empty
from combee_experiments.arms.agents import reflect_all
from combee_experiments.arms.arms import Arm
from combee_experiments.arms.learning import Learnt, learn
from combee_experiments.data.samples import PLAYBOOK, Data
from combee_experiments.running.cells import Numbers
from combee_experiments.running.setup import Setup, data_digest
from combee_experiments.running.store import append_lines, read_lines
from combee_experiments.running.virtual_time import run_virtual
from combee_experiments.scoring.exam import examine
from combee_experiments.scoring.lessons import lessons_of
from combee_schemas.digests import digest
from combee_schemas.reflection import Reflection
from combee_sim.inprocess import SimulatedModel
from combee_sim.modes import NO_MODES, Modes


def reflections(setup: Setup, data: Data, seed: int) -> tuple[Reflection, ...]:
    """Return a reflection per training sample, in an order drawn with the seed."""
    made = _failing(setup, data, seed) if setup.simulated else setup.run(_real(setup, data))
    return tuple(Random(seed).sample(made, len(made)))  # noqa: S311 - reproducible, not secret


def _failing(setup: Setup, data: Data, seed: int) -> tuple[Reflection, ...]:
    # A reflector without modes says the same with every seed.
    return _simulated(data, setup.modes, seed if setup.modes != NO_MODES else 0)


@lru_cache(maxsize=64)
def _simulated(data: Data, modes: Modes, seed: int) -> tuple[Reflection, ...]:
    model = SimulatedModel(seed=seed, knowledge=data.knowledge, modes=modes)
    return run_virtual(reflect_all(model, empty(PLAYBOOK), data.train))


async def _real(setup: Setup, data: Data) -> tuple[Reflection, ...]:
    """Ask a real model for those that are not kept yet, as many at once as its settings allow."""
    kept = _Kept(setup, data)
    async with setup.open_model(0) as model:
        missing = [one for one in data.train if one.trace_id not in kept.known]
        for start in range(0, len(missing), setup.concurrency):
            await kept.add(model, missing[start : start + setup.concurrency])
    return tuple(kept.known[one.trace_id] for one in data.train if one.trace_id in kept.known)


class _Kept:
    """Reflections on disk, a line each: they cost money."""

    def __init__(self, setup: Setup, data: Data) -> None:
        name = digest("reflections", setup.model_name, data_digest(data)).hex()
        self._path = setup.cache / f"{name}.jsonl" if setup.cache else None
        found = _read(self._path) if self._path else ()
        self.known = {str(one.trace_id): one for one in found}

    async def add(self, model: LanguageModel, samples: Sequence[Sample]) -> None:
        """Reflect on samples and keep what comes of it."""
        made = await reflect_all(model, empty(PLAYBOOK), samples)
        self.known |= {str(one.trace_id): one for one in made}
        if self._path is not None:
            append_lines(self._path, (one.model_dump_json() for one in made))


def _read(path: Path) -> Iterator[Reflection]:
    for line in read_lines(path):
        with suppress(ValidationError):  # torn by a kill: made again
            yield Reflection.model_validate_json(line)


Arrange = Callable[[Sequence[Reflection]], Sequence[Reflection]]


def measure_updates(
    setup: Setup, data: Data, arm: Arm, batch_size: int, seed: int, *, arrange: Arrange = tuple
) -> Numbers:
    """Let an arm learn from the reflections that all arms read; only update calls take time."""
    made = arrange(reflections(setup, data, seed))
    return setup.run(_updates(setup, data, made, arm, batch_size, seed))


async def _updates(
    setup: Setup, data: Data, made: Sequence[Reflection], arm: Arm, batch_size: int, seed: int
) -> Numbers:
    async with setup.open_model(seed) as model:
        learnt = await learn(setup.paced(model, seed), made, arm, batch_size)
        return learnt.numbers() | await exam(setup, model, data, learnt, made)


async def exam(
    setup: Setup, model: LanguageModel, data: Data, learnt: Learnt, made: Sequence[Reflection]
) -> dict[str, float]:
    """Return what the playbook is worth: lessons in it, of those in the reflections, and what agents get right."""
    lessons = lessons_of(data, by_name=not setup.simulated)
    result = await examine(model, data, lessons, lambda _: learnt.playbook, simulated=setup.simulated)
    return {
        **lessons.numbers(learnt.texts),
        "lessons_there": len(lessons.kept(one.key_insight for one in made)),
        "accuracy": result.accuracy,
    }
