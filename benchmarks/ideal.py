"""The ideal: the same tree in virtual time, each call as long as the model's own log says, all else for nothing.

A call is found in the log by the hash of its prompt. So the tree has the very dependencies and durations of
the measured run, and at most ``concurrency`` calls are under way, the highest level first, then in order.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from combee.adapters.openai.limits import PrioritySlots
from combee.core.playbook.versions import empty
from combee.sim.inprocess import SimulatedModel, as_request
from combee.sim.roles.respond import respond
from combee_experiments.arms.arms import ADAPTIVE
from combee_experiments.arms.scanning import Scan
from combee_experiments.running.virtual_time import run_virtual
from combee_schemas.batch import Batch
from combee_schemas.model import Prompt, Reply
from combee_schemas.reflection import Reflection


class LoggedModel:
    """The stand-in's replies, at the speed its call log tells."""

    def __init__(self, seconds: Mapping[str, float], concurrency: int) -> None:
        self._inner = SimulatedModel()
        self._seconds = seconds
        self._slots = PrioritySlots(concurrency)

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        """Answer after as long as this very call took."""
        took_s = self._seconds[respond(as_request(prompt), self._inner.seed).prompt_hash]
        async with self._slots.hold(priority):
            await asyncio.sleep(took_s)
        return await self._inner.ask(prompt)

    def drain(self) -> None:
        """Do nothing: there is nothing to stop."""

    async def close(self) -> None:
        """Do nothing: nothing is open."""


def logged_calls(call_log: Path) -> dict[str, float]:
    """Return how long the last call of each prompt took in the model's own process, in seconds."""
    calls = map(json.loads, call_log.read_text("utf-8").splitlines())
    return {call["prompt_hash"]: (call["end_ms"] - call["start_ms"]) / 1000 for call in calls}


def ideal_s(
    batch: Batch, reflections: Sequence[Reflection], seconds: Mapping[str, float], concurrency: int
) -> float:
    """Return how long the first batch of a playbook must take, in seconds."""
    return run_virtual(_run(batch, reflections, LoggedModel(seconds, concurrency)))


async def _run(batch: Batch, reflections: Sequence[Reflection], model: LoggedModel) -> float:
    await Scan(model, ADAPTIVE, empty(batch.plan.playbook), batch, reflections).update()
    return asyncio.get_running_loop().time()
