"""Throughput: reflections a second through shuffle alone, and from publish to playbook with an instant model."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from benchmarks.cluster import WAIT_S, Cluster, fresh, lessons, running_cluster
from benchmarks.processor import shares, used_ms
from benchmarks.rows import Row, row
from combee.process.worker.views import View
from combee_schemas import topics
from combee_schemas.batch import Batch
from combee_schemas.reflection import Reflection

Done = Callable[[Sequence[Reflection]], Awaitable[float]]
"""Waits until all of these are through; returns when, in monotonic seconds."""

TIMEOUT_S = 600.0
PLAYBOOKS = 16
EACH = 200
BATCH_SIZE = 40
SHUFFLE_BAR, PLAYBOOK_BAR = 2_500.0, 700.0
IN_FLIGHT = 16
"""More than the batches of a playbook in one run: nobody publishes where shuffle is alone."""


async def measure(bootstrap_servers: str, runs: int) -> list[Row]:
    """Return both rates; what is published is written in one burst, and read while it is written."""
    return [await _shuffled(bootstrap_servers, runs), *await _published(bootstrap_servers, runs)]


async def _shuffled(bootstrap_servers: str, runs: int) -> Row:
    """Reflections a second, from the first one written to the last manifest."""
    async with running_cluster(
        bootstrap_servers, roles=("shuffle",), batch_size=BATCH_SIZE, max_inflight_batches=IN_FLIGHT
    ) as cluster:
        counter = _Counter(cluster)
        following = asyncio.create_task(counter.view.run())
        await counter.view.wait_current(WAIT_S)
        rates = [await _rate(cluster, counter.until) for _ in range(runs + 1)]
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    return row("through shuffle", rates[1:], "reflections/s", SHUFFLE_BAR, at_least=True)


async def _published(bootstrap_servers: str, runs: int) -> list[Row]:
    """Reflections a second, from the first one written to the last version at a subscriber; and what each costs."""
    rates, used = [], []
    async with running_cluster(bootstrap_servers, batch_size=BATCH_SIZE) as cluster:
        for _ in range(runs + 1):
            rates.append(await _rate(cluster, partial(_versions, cluster)))
            used.append(used_ms(cluster))
    return [
        row(
            "from publish to playbook, instant model", rates[1:], "reflections/s", PLAYBOOK_BAR, at_least=True
        ),
        *shares(used, PLAYBOOKS * EACH, "reflection"),
    ]


async def _rate(cluster: Cluster, done: Done) -> float:
    """Publish a burst; return its reflections a second. The first run only warms up."""
    given = [lesson for n in range(PLAYBOOKS) for lesson in lessons(fresh(f"flow{n}"), EACH)]
    began = time.monotonic()
    await cluster.publish(given)
    return len(given) / (await done(given) - began)


async def _versions(cluster: Cluster, given: Sequence[Reflection]) -> float:
    names = {reflection.playbook for reflection in given}
    latest = cluster.subscriber.playbooks.latest
    return await cluster.subscriber.until(
        lambda: all(latest(name).version == EACH // BATCH_SIZE for name in names)
    )


class _Counter:
    """Counts the reflections in manifests."""

    def __init__(self, cluster: Cluster) -> None:
        self._seen = 0
        self._wanted = 0
        self._changed = asyncio.Event()
        self.view: View[Batch] = View(cluster.log, topics.BATCHES, on_change=self._count)

    def _count(self, _key: str, batch: Batch | None) -> None:
        self._seen += len(batch.members) if batch else 0
        self._changed.set()

    async def until(self, given: Sequence[Reflection]) -> float:
        self._wanted += len(given)
        async with asyncio.timeout(WAIT_S):
            while self._seen < self._wanted:
                self._changed.clear()
                await self._changed.wait()
        return time.monotonic()
