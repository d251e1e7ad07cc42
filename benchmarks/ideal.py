"""The ideal: what no schedule of a batch's model calls can undercut; and a greedy schedule beside it.

Both follow from the batch's own tree in virtual time, each call as long as the model's own log says, all else for
nothing. A call is found in the log by the hash of its prompt, so the tree has the very dependencies and durations of
the measured run. The greedy schedule begins a call as soon as it can, of several that wait the highest level's first:
the best that a worker knows to do, but no lower bound, for another order of the same calls may end sooner.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from combee.adapters.asking.limits import PrioritySlots
from combee.core.playbook.versions import empty
from combee_experiments.arms.arms import ADAPTIVE
from combee_experiments.arms.scanning import Scan
from combee_experiments.running.virtual_time import run_virtual
from combee_schemas.batch import Batch
from combee_schemas.model import Prompt, Reply
from combee_schemas.reflection import Reflection
from combee_sim.inprocess import SimulatedModel, as_request
from combee_sim.roles.respond import respond

UNLIMITED = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ideal:
    """What a batch must take, in seconds."""

    least_s: float
    """No schedule is shorter."""
    greedy_s: float
    """The greedy schedule's."""


class LoggedModel:
    """The stand-in's replies, at the speed its call log tells; ``levels`` has how long each level's calls took."""

    def __init__(self, seconds: Mapping[str, float], slots: int) -> None:
        self.levels: defaultdict[int, list[float]] = defaultdict(list)
        self._inner = SimulatedModel()
        self._seconds = seconds
        self._slots = PrioritySlots(slots)

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        """Answer after as long as this very call took; the tree gives its levels as priorities."""
        took_s = self._seconds[respond(as_request(prompt), self._inner.seed).prompt_hash]
        self.levels[priority].append(took_s)
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


def ideal(batch: Batch, reflections: Sequence[Reflection], seconds: Mapping[str, float], slots: int) -> Ideal:
    """Return what the first batch of a playbook must take with so many calls in flight at most."""
    unhindered = LoggedModel(seconds, UNLIMITED)
    longest_path_s = run_virtual(_run(batch, reflections, unhindered))
    # A node that asks nothing is a call of no length; the root's check is a level of its own.
    levels = [
        unhindered.levels[level] + [0.0] * (width - len(unhindered.levels[level]))
        for level, width in enumerate((*batch.plan.widths, 1))
    ]
    return Ideal(
        least_s=least_s(longest_path_s, levels, slots),
        greedy_s=run_virtual(_run(batch, reflections, LoggedModel(seconds, slots))),
    )


def least_s(longest_path_s: float, levels: Sequence[Sequence[float]], slots: int) -> float:
    """Return a lower bound of every schedule of a tree; ``levels`` are the lengths of its calls, leaves first.

    It is as long as its longest path. And for each level: the calls up to it take their sum divided by the slots, and
    after the last of them at least one call of each level above is still to be made.
    """
    bounds, work_s = [longest_path_s], 0.0
    for level, calls in enumerate(levels, 1):
        work_s += sum(calls)
        bounds.append(work_s / slots + sum(map(min, levels[level:])))
    return max(bounds)


async def _run(batch: Batch, reflections: Sequence[Reflection], model: LoggedModel) -> float:
    await Scan(model, ADAPTIVE, empty(batch.plan.playbook), batch, reflections).update()
    return asyncio.get_running_loop().time()
