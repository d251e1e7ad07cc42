"""Simulated agents in drawn time: what they will learn is known beforehand, when they publish it is not."""

import asyncio
from collections.abc import Iterator, Sequence

from combee.sim.chance import draw
from combee_experiments.arms.services import Services
from combee_experiments.arms.tails import Tail
from combee_schemas.reflection import Reflection


class Fleet:
    """Agents that run, each with the newest version at its start, and publish what they learned."""

    def __init__(self, services: Services, tail: Tail, seed: int) -> None:
        self._services = services
        self._tail = tail
        self._seed = seed
        self.started_at: dict[str, int] = {}
        """Reflection id → version at the start of its run."""
        self.published = 0

    async def run(self, reflections: Sequence[Reflection], agents: int) -> None:
        """Let so many agents make these reflections, each as long as there are any left."""
        queue = iter(reflections)
        async with asyncio.TaskGroup() as group:
            for _ in range(agents):
                group.create_task(self._agent(queue))

    async def _agent(self, queue: Iterator[Reflection]) -> None:
        for reflection in queue:
            name = reflection.reflection_id
            self.started_at[name] = self._services.latest.version
            await asyncio.sleep(self._tail.seconds(draw("agent time", self._seed, name)))
            await self._services.publish(reflection)
            self.published += 1
