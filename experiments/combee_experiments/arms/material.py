"""The reflections that all arms of an experiment read: made once, by agents without a playbook."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from random import Random

from pydantic import ValidationError

from combee.core.formats.intake import Sample
from combee.core.playbook.apply import empty
from combee.ports import LanguageModel
from combee.sim.inprocess import SimulatedModel
from combee_experiments.arms.agents import reflect_all
from combee_experiments.arms.virtual import run_virtual
from combee_experiments.data.samples import PLAYBOOK, Data
from combee_experiments.running import lines
from combee_experiments.running.setup import Setup, data_digest
from combee_schemas.digests import digest
from combee_schemas.reflection import Reflection


def reflections(setup: Setup, data: Data, seed: int) -> tuple[Reflection, ...]:
    """Return a reflection per training sample, in an order drawn with the seed."""
    made = _simulated(data) if setup.simulated else setup.run(_real(setup, data))
    return tuple(Random(seed).sample(made, len(made)))  # noqa: S311 - reproducible, not secret


@lru_cache(maxsize=4)
def _simulated(data: Data) -> tuple[Reflection, ...]:
    return run_virtual(reflect_all(SimulatedModel(), empty(PLAYBOOK), data.train))


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
            lines.append(self._path, (one.model_dump_json() for one in made))


def _read(path: Path) -> Iterator[Reflection]:
    for line in lines.read(path):
        with suppress(ValidationError):  # torn by a kill: made again
            yield Reflection.model_validate_json(line)
