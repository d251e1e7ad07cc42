"""The faults: each a small function that hurts a run at seeded moments and returns when it is healed."""

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from random import Random
from typing import Literal

import aiokafka

from combee.adapters.embedded_kafka import EmbeddedKafka
from combee_schemas import topics
from support.failpoints.points import POINTS
from support.faults_driver import Driver, items
from support.faults_scenario import Fault, Run
from support.faults_stage import ROLES
from support.proxy import Proxy

RESTARTED_S = 45.0
MAJORITY_DOWN_S = 10.0
MORE = 30
ASKING = ("reflect", "scan")
WRITING = ("shuffle", "publish")
PLACES = {
    ASKING: [point for point in POINTS if "ask" in point or "produce" in point or "offset commit" in point],
    WRITING: [
        point for point in POINTS if "transaction" in point or point in ("before commit", "after commit")
    ],
}
"""Which services pass which points."""
How = Literal["silent", "resets"]
"""What a partition of the network looks like to those it separates."""


def kills(*roles: str, times: int = 2) -> Fault:
    """kill -9 of all replicas of these services, several times."""

    async def fault(run: Run) -> None:
        names = [name for role in roles for name in run.stage.names(role)]
        for moment in run.moments(times):
            await run.reach(moment)
            await end(run, names, signal.SIGKILL)

    return fault


async def end(run: Run, names: Sequence[str], sign: signal.Signals) -> None:
    """End processes, and wait until the supervisor has replaced them."""
    run.hurt(*{name.partition("-")[0] for name in names}, calls=sign == signal.SIGKILL)
    began = time.monotonic()
    for name in names:
        run.stage.supervisor.send(name, sign)
    await run.stage.supervisor.restarted(names, RESTARTED_S)
    run.ready_s.append(time.monotonic() - began)


def roll(times: int = 1) -> Fault:
    """SIGTERM one service after the other, as an upgrade does."""

    async def fault(run: Run) -> None:
        moments = run.moments(times * len(ROLES))
        for role, moment in zip(ROLES * times, moments, strict=True):
            await run.reach(moment)
            await end(run, run.stage.names(role), signal.SIGTERM)

    return fault


def zombie(role: str, seconds: float) -> Fault:
    """SIGSTOP one of two replicas for longer than its session lasts, then let it go on with what it knew."""

    async def fault(run: Run) -> None:
        await run.reach(run.moments(1)[0])
        pid = run.stage.supervisor.pid(run.stage.names(role)[0])
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)  # the fault is this long
        finally:
            os.kill(pid, signal.SIGCONT)
        run.hurt(role)

    return fault


def partition(proxy: Proxy, role: str, seconds: float, *, how: How) -> Fault:
    """Cut one service off from the broker: silently (no byte, no reset), or with resets and refusals."""

    async def fault(run: Run) -> None:
        await run.reach(run.moments(1, high=0.5)[0])
        proxy.hold() if how == "silent" else proxy.cut()
        await asyncio.sleep(seconds)  # the fault is this long
        proxy.heal()
        run.hurt(role)

    return fault


def rebalances(times: int = 4) -> Fault:
    """Second replicas leave and come back in quick succession, third ones join."""

    async def fault(run: Run) -> None:
        for number, moment in enumerate(run.moments(times, high=0.6)):
            await run.reach(moment)
            role = run.rng.choice(ROLES)
            run.hurt(*ROLES)
            if number == 1:
                await run.stage.start(role, 2)
            else:
                await end(run, [run.stage.names(role)[1]], run.rng.choice([signal.SIGTERM, signal.SIGKILL]))

    return fault


def bad_model(until: float = 0.6, **rates: float) -> Fault:
    """Let a share of the model's answers be bad until so much of the work is done."""

    async def fault(run: Run) -> None:
        await asyncio.to_thread(run.stage.model_faults, **rates)
        await run.reach(until)
        await asyncio.to_thread(run.stage.model_faults)
        run.hurt("model", calls=False)

    return fault


def model_down(seconds: float) -> Fault:
    """Let the model refuse every call for a while."""

    async def fault(run: Run) -> None:
        await run.reach(run.moments(1, high=0.4)[0])
        await asyncio.to_thread(run.stage.model_faults, down_for_s=seconds)
        await asyncio.sleep(seconds)  # the fault is this long
        run.hurt("model", calls=False)

    return fault


def broker_killed(kafka: EmbeddedKafka, times: int = 1) -> Fault:
    """kill -9 of the only broker, which comes back on its data."""

    async def fault(run: Run) -> None:
        for moment in run.moments(times, high=0.5):
            await run.reach(moment)
            kafka.kill()
            await kafka.restart_node(1)
            run.hurt(*ROLES)

    return fault


def random_kills(kafka: EmbeddedKafka, times: int = 6) -> Fault:
    """kill -9 of the only broker or of a service, drawn anew each time; the first victim is the broker."""

    async def fault(run: Run) -> None:
        for number, moment in enumerate(run.moments(times)):
            await run.reach(moment)
            if number == 0 or run.rng.random() < 1 / 3:
                kafka.kill()
                await asyncio.sleep(run.rng.uniform(0, 2))  # services may die while it is away, too
                if run.rng.random() < 1 / 2:
                    run.stage.supervisor.send(role := run.rng.choice(ROLES), signal.SIGKILL)
                    run.hurt(role)
                await kafka.restart_node(1)
                run.hurt(*ROLES)
            else:
                await end(run, [run.rng.choice(ROLES)], signal.SIGKILL)

    return fault


def failpoints(point: str, seed: int) -> tuple[dict[str, str], Fault]:
    """Make every service that passes a point die there, at a seeded pass; return their failpoints and the fault."""
    roles = next(roles for roles, points in PLACES.items() if point in points)
    rng = Random(f"{point} {seed}")
    at = {role: f"{point}@{rng.randint(1, 4)}" for role in roles}

    async def fault(run: Run) -> None:
        markers = [run.stage.scene.died(role) for role in roles]
        run.hurt(*roles)
        await run.watch.until(
            lambda: all(marker.exists() for marker in markers), 60, f"not every service died {point}"
        )

    return at, fault


async def _leader(run: Run) -> int:
    """Return the node that leads the first partition of ``reflections``."""
    client = aiokafka.AIOKafkaConsumer(bootstrap_servers=run.stage.scene.bootstrap_servers)
    await client.start()
    try:
        name = f"{run.stage.scene.prefix}.{topics.REFLECTIONS.name}"
        cluster = await client._client.fetch_all_metadata()
        leader: int | None = cluster.leader_for_partition(aiokafka.TopicPartition(name, 0))
    finally:
        await client.stop()
    assert leader, "nobody leads"
    return leader


def leader_killed(kafka: EmbeddedKafka) -> Fault:
    """kill -9 of the node that leads; it comes back later."""

    async def fault(run: Run) -> None:
        await run.reach(run.moments(1, high=0.4)[0])
        node = await _leader(run)
        kafka.kill(node)
        run.hurt(*ROLES)
        await run.reach(0.7)
        await kafka.restart_node(node)

    return fault


def majority_killed(kafka: EmbeddedKafka) -> Fault:
    """kill -9 of two nodes of three: nothing may be acknowledged until one of them is back."""

    async def fault(run: Run) -> None:
        await run.reach(run.moments(1, high=0.4)[0])
        for node in (1, 2):
            kafka.kill(node)
        agent = Driver(run.stage.log)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(agent.publish(items(MORE, seed=run.rng.randrange(1000, 2000))))
                await asyncio.sleep(MAJORITY_DOWN_S)  # the fault is this long
                assert not agent.acked, "something was acknowledged by a minority"
                await asyncio.gather(kafka.restart_node(1), kafka.restart_node(2))
                run.hurt(*ROLES)
        finally:
            await agent.close()
        run.driver.acked |= agent.acked
        run.driver.traces += agent.traces

    return fault
