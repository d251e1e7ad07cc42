"""Processes that die, are told to stop, or come back from the dead; every one is a real one."""

import pytest

from support.broker import Broker
from support.faults.cluster import ROLES
from support.faults.injected import kills, rebalances, roll, zombie
from support.faults.plugin import Survives

pytestmark = pytest.mark.timeout(300)
ZOMBIE_S = 20.0
"""Longer than a session (10 s), so that the other replica takes over."""


@pytest.mark.parametrize("role", ROLES)
async def test_kill_9_of_one_service(kafka: Broker, survives: Survives, role: str) -> None:
    await survives(kafka.bootstrap_servers, f"kill -9 {role}", kills(role))


async def test_kill_9_of_every_service_at_once(kafka: Broker, survives: Survives) -> None:
    await survives(kafka.bootstrap_servers, "kill -9 all services", kills(*ROLES))


async def test_kill_9_of_every_service_with_replicas_that_have_no_number(
    kafka: Broker, survives: Survives
) -> None:
    await survives(
        kafka.bootstrap_servers,
        "kill -9 all services, dynamic members",
        kills(*ROLES),
        replicas=2,
        numbered=False,
    )


async def test_sigterm_of_one_service_after_the_other(kafka: Broker, survives: Survives) -> None:
    await survives(kafka.bootstrap_servers, "SIGTERM roll", roll())


@pytest.mark.parametrize("role", ["shuffle", "publish"])
async def test_frozen_replica_wakes_up_as_a_zombie(kafka: Broker, survives: Survives, role: str) -> None:
    name = f"SIGSTOP {ZOMBIE_S:.0f} s, SIGCONT {role}"
    await survives(kafka.bootstrap_servers, name, zombie(role, ZOMBIE_S), replicas=2)


async def test_storm_of_rebalances(kafka: Broker, survives: Survives) -> None:
    await survives(kafka.bootstrap_servers, "rebalance storm", rebalances(), replicas=2)


async def test_kill_9_of_every_service_while_late_groups_are_left_out(
    kafka: Broker, survives: Survives
) -> None:
    # With three copies in four groups any half of the tree has read everything.
    outcome = await survives(
        kafka.bootstrap_servers,
        "kill -9 all services, stragglers",
        kills(*ROLES),
        latency="lognormal:0.15,1",
        settings={"stragglers": True, "copies": 3},
    )
    assert outcome.left_out, "nothing was left out: this proves nothing"
