"""The faults of processes, network, model and broker: each acts at seeded moments and returns when it is healed."""

import asyncio
import signal
from random import Random

import aiokafka

from combee_schemas import topics
from support.failpoints.points import POINTS
from support.faults.actions import How, end_processes, freeze, frozen, refuse_calls, restart_broker, separate
from support.faults.brokers import Proxy
from support.faults.cluster import ROLES
from support.faults.driver import PLAYBOOKS, Driver, items
from support.faults.kafka import FragileKafka
from support.faults.run import SETTLE_S, Fault, Run

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


def kills(*roles: str, times: int = 2) -> Fault:
    """kill -9 of all replicas of these services, several times."""

    async def fault(run: Run) -> None:
        names = [name for role in roles for name in run.cluster.names(role)]
        for moment in run.moments(times):
            await run.reach(moment)
            await end_processes(run, names, signal.SIGKILL)

    return fault


def roll() -> Fault:
    """SIGTERM one service after the other, as an upgrade does."""

    async def fault(run: Run) -> None:
        moments = run.moments(len(ROLES))
        for role, moment in zip(ROLES, moments, strict=True):
            await run.reach(moment)
            await end_processes(run, run.cluster.names(role), signal.SIGTERM)

    return fault


def zombie(role: str, seconds: float) -> Fault:
    """SIGSTOP one of two replicas for longer than its session lasts, then let it go on with what it knew."""

    async def fault(run: Run) -> None:
        await run.reach(run.moments(1)[0])
        await freeze(run, role, seconds)

    return fault


def zombie_with_open_windows(seconds: float) -> Fault:
    """SIGSTOP one of two shuffles while every playbook has an open window, until all of these are batches.

    It takes longer than windows stay open. So whichever partitions it owns, it wakes up with a batch to cut that its
    successor has cut.
    """

    async def fault(run: Run) -> None:
        progress = run.progress
        assert seconds > run.cluster.settings.batch.max_wait_s
        await progress.until(
            lambda: progress.open_windows == set(PLAYBOOKS), SETTLE_S, "not every window is open"
        )
        waiting = progress.offsets.keys() - progress.batch_of
        with frozen(run, "shuffle"):
            await asyncio.sleep(seconds)  # the fault is this long at least
            await progress.until(lambda: waiting <= progress.batch_of.keys(), SETTLE_S, "a window is open")

    return fault


def partition(proxy: Proxy, role: str, seconds: float, *, how: How) -> Fault:
    """Cut one service off from the broker: silently (no byte, no reset), or with resets and refusals."""

    async def fault(run: Run) -> None:
        await run.reach(run.moments(1, high=0.5)[0])
        await separate(run, proxy, seconds, how, role)

    return fault


def rebalances() -> Fault:
    """Second replicas leave and come back in quick succession, third ones join."""

    async def fault(run: Run) -> None:
        for number, moment in enumerate(run.moments(4, high=0.6)):
            await run.reach(moment)
            role = run.rng.choice(ROLES)
            run.note_fault(*ROLES)
            if number == 1:
                await run.cluster.start(role, 2)
            else:
                await end_processes(
                    run, [run.cluster.names(role)[1]], run.rng.choice([signal.SIGTERM, signal.SIGKILL])
                )

    return fault


def bad_model(until: float = 0.6, **rates: float) -> Fault:
    """Let a share of the model's answers be bad until so much of the work is done."""

    async def fault(run: Run) -> None:
        await asyncio.to_thread(run.cluster.model_faults, **rates)
        await run.reach(until)
        await asyncio.to_thread(run.cluster.model_faults)
        run.note_fault("model", calls=False)

    return fault


def model_down(seconds: float) -> Fault:
    """Let the model refuse every call for a while."""

    async def fault(run: Run) -> None:
        await run.reach(run.moments(1, high=0.4)[0])
        await refuse_calls(run, seconds)

    return fault


def broker_killed(kafka: FragileKafka) -> Fault:
    """kill -9 of the only broker, which comes back on its data."""

    async def fault(run: Run) -> None:
        await run.reach(run.moments(1, high=0.5)[0])
        await restart_broker(run, kafka)

    return fault


def random_kills(kafka: FragileKafka) -> Fault:
    """kill -9 of the only broker or of a service, drawn anew each time; the first victim is the broker."""

    async def fault(run: Run) -> None:
        for number, moment in enumerate(run.moments(6)):
            await run.reach(moment)
            if number == 0 or run.rng.random() < 1 / 3:
                kafka.kill()
                await asyncio.sleep(run.rng.uniform(0, 2))  # services may die while it is away, too
                if run.rng.random() < 1 / 2:
                    run.cluster.supervisor.send(role := run.rng.choice(ROLES), signal.SIGKILL)
                    run.note_fault(role)
                await kafka.restart_node(1)
                run.note_fault(*ROLES)
            else:
                await end_processes(run, [run.rng.choice(ROLES)], signal.SIGKILL)

    return fault


def failpoints(point: str, seed: int) -> tuple[dict[str, str], Fault]:
    """Make every service that passes a point die there, at a seeded pass; return their failpoints and the fault."""
    roles = next(roles for roles, points in PLACES.items() if point in points)
    rng = Random(f"{point} {seed}")
    at = {role: f"{point}@{rng.randint(1, 4)}" for role in roles}

    async def fault(run: Run) -> None:
        markers = [run.cluster.scenario.died(role) for role in roles]
        run.note_fault(*roles)
        await run.progress.until(
            lambda: all(marker.exists() for marker in markers), 60, f"not every service died {point}"
        )

    return at, fault


async def _leader(run: Run) -> int:
    """Return the node that leads the first partition of ``reflections``."""
    client = aiokafka.AIOKafkaConsumer(bootstrap_servers=run.cluster.scenario.bootstrap_servers)
    await client.start()
    try:
        name = f"{run.cluster.scenario.prefix}.{topics.REFLECTIONS.name}"
        metadata = await client._client.fetch_all_metadata()
        leader: int | None = metadata.leader_for_partition(aiokafka.TopicPartition(name, 0))
    finally:
        await client.stop()
    assert leader, "nobody leads"
    return leader


def leader_killed(kafka: FragileKafka) -> Fault:
    """kill -9 of the node that leads; it comes back later."""

    async def fault(run: Run) -> None:
        await run.reach(run.moments(1, high=0.4)[0])
        node = await _leader(run)
        kafka.kill(node)
        run.note_fault(*ROLES)
        await run.reach(0.7)
        await kafka.restart_node(node)

    return fault


def majority_killed(kafka: FragileKafka) -> Fault:
    """kill -9 of two nodes of three: nothing may be acknowledged until one of them is back."""

    async def fault(run: Run) -> None:
        await run.reach(run.moments(1, high=0.4)[0])
        for node in (1, 2):
            kafka.kill(node)
        agent = Driver(run.cluster.log)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(agent.publish(items(MORE, seed=run.rng.randrange(1000, 2000))))
                await asyncio.sleep(MAJORITY_DOWN_S)  # the fault is this long
                assert not agent.acked, "something was acknowledged by a minority"
                await asyncio.gather(kafka.restart_node(1), kafka.restart_node(2))
                run.note_fault(*ROLES)
        finally:
            await agent.close()
        run.driver.acked |= agent.acked
        run.driver.traces += agent.traces

    return fault
