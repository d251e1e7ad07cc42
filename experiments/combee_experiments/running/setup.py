"""What all cells of a run share: model, data, seeds, pace, and the fingerprint of the code."""

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import combee
import combee_experiments
import combee_schemas
import combee_sim
from combee.adapters.ports import LanguageModel
from combee.core.playbook.spend import UNCAPPED, SpendPolicy
from combee.process.settings.model import ModelSettings
from combee_experiments.arms.tails import SlowModel
from combee_experiments.data.samples import Data
from combee_experiments.running.cells import Cell
from combee_experiments.running.virtual_time import run_virtual
from combee_schemas.digests import digest
from combee_sim.family.knowledge import NOTHING_KNOWN
from combee_sim.inprocess import SimulatedModel
from combee_sim.law.rules import IN_FORCE, parse_law
from combee_sim.modes import NO_MODES, Modes
from combee_sim.prefix_cache import PrefixCache
from combee_sim.server.latency import Latency

T = TypeVar("T")
SIMULATED = "simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One run's circumstances."""

    model: ModelSettings | None = None
    """A real model; None: the stand-in, and everything is simulated."""
    data: tuple[Data, ...]
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    latency: Latency = field(default_factory=lambda: Latency(median_s=1.0))
    """Of one simulated model call, in virtual time."""
    law: str = IN_FORCE
    """The counting rule by which the stand-in overloads."""
    modes: Modes = NO_MODES
    """How the stand-in fails beyond that."""
    concurrency: int = 32
    """Model calls at once."""
    samples: int | None = None
    """The largest number of reflections where an experiment makes its own; None: as many as it wants."""
    prices: SpendPolicy = UNCAPPED
    """What tokens cost. In no cell: tokens are measured, money is told."""
    cache: Path | None = None
    """Where reflections that a real model made are kept; None: nowhere."""

    @property
    def simulated(self) -> bool:
        """Whether the stand-in answers."""
        return self.model is None

    @property
    def model_name(self) -> str:
        """The model, as tables print it."""
        return SIMULATED if self.model is None else str(self.model.model)

    def identity(self, cell: Cell) -> dict[str, object]:
        """Return all that a cell's numbers depend on."""
        law = [
            self.latency.median_s,
            self.latency.sigma,
            *([self.latency.shape] if self.latency.shape else []),
        ]
        pace = {"latency_s": law, "concurrency": self.concurrency}
        return {
            **cell.as_json(),
            "model": self.model_name,
            "simulated": self.simulated,
            "code": fingerprint(),
            "data": {
                one.name: data_digest(one) for one in self.data if one.name in dict(cell.parameters).values()
            },
            **pace,
            "law": self.law,
            "modes": list(self.modes.summary()),
        }

    def named(self, name: str) -> Data:
        """Return the data of this name."""
        return next(one for one in self.data if one.name == name)

    @asynccontextmanager
    async def open_model(self, seed: int) -> AsyncIterator[LanguageModel]:
        """Yield the model that answers at once (stand-in) or as fast as it can (a real one)."""
        if self.model is None:
            known = sum((data.knowledge for data in self.data), NOTHING_KNOWN)
            law = parse_law(self.law)
            yield SimulatedModel(seed=seed, knowledge=known, cache=PrefixCache(), law=law, modes=self.modes)
            return
        from combee.assembly.backends import language_model  # noqa: PLC0415 - the SDK is slow to load

        model = language_model(self.model)
        try:
            yield model
        finally:
            await model.close()

    def paced(self, model: LanguageModel, seed: int) -> LanguageModel:
        """Return a model whose calls take this setup's time; a real one takes its own."""
        if not self.simulated:
            return model
        return SlowModel(model, self.latency, seed=seed, concurrency=self.concurrency)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the work of one cell: in virtual time where nothing is real, so that nothing is slept."""
        return run_virtual(work) if self.simulated else asyncio.run(work)


def data_digest(data: Data) -> str:
    """Return a short name of exactly these samples."""
    samples = (text for one in (*data.train, *data.exam) for text in (one.question, one.target))
    parts = (*samples, *(row.statement for row in data.knowledge.rows))
    return digest("data", *parts).hex()


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read ``0-4``, ``1,3,5`` or ``N``, which means the first N.

    Raises
    ------
    ValueError
        If it is none of these.
    """
    first, dash, last = text.partition("-")
    try:
        if dash:
            seeds = tuple(range(int(first), int(last) + 1))
        elif "," in text:
            seeds = tuple(dict.fromkeys(int(part) for part in text.split(",")))
        else:
            seeds = tuple(range(int(text)))
    except ValueError:
        seeds = ()
    if not seeds:
        raise ValueError(f"seeds {text!r}: expected 0-4, or 1,3,5, or how many")
    return seeds


def summary(setup: Setup) -> Mapping[str, object]:
    """Return the circumstances for a result file."""
    return {
        "model": setup.model_name,
        "simulated": setup.simulated,
        "data": [one.name for one in setup.data],
        "seeds": list(setup.seeds),
        "samples": setup.samples,
        "latency_s": setup.latency.median_s if setup.simulated else None,
        "concurrency": setup.concurrency,
        "law": setup.law if setup.simulated else None,
        "modes": list(setup.modes.summary()),
    }


SHOWS = re.compile(
    r"(cli|adapters)/.*|(\w+/)?\w*(report|front)\.py|(running/(plot|results|store|lines)|data/paper|catalogue)\.py"
)
"""Files that show numbers, or move them between machines, decide none."""


@cache
def fingerprint() -> str:
    """Return a short hash of every source file that decides numbers."""
    return digest(
        "code", *(text for path in sorted(_sources()) for text in (path.name, path.read_text("utf-8")))
    ).hex()


def _sources() -> Iterator[Path]:
    for package in (combee, combee_experiments, combee_schemas, combee_sim):
        root = Path(next(iter(package.__path__)))
        for path in root.rglob("*.py"):
            if not SHOWS.fullmatch(path.relative_to(root).as_posix()):
                yield path
