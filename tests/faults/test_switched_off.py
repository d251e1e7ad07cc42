"""Protections taken out of the real processes (tests/services/test_protections.py has the others)."""

import signal
from pathlib import Path

import pytest

from combee.adapters.ports import FatalError
from support.broker import Broker
from support.faults.cluster import Scenario, patched, running_cluster
from support.faults.driver import Driver, items
from support.faults.injected import zombie_with_open_windows
from support.faults.plugin import Survives
from support.faults.progress import Progress

pytestmark = pytest.mark.timeout(300)
IN_TIME_S = 15.0
WINDOW_S = 20.0
"""Longer than a batch takes: windows that wait behind one stay open until it is applied."""
UNFENCED = """
import os
from combee.adapters.kafka import log

named = log.KafkaLog.transactor
log.KafkaLog.transactor = lambda self, name: named(self, f"{name}-{os.getpid()}")
"""
WAITING_FOR_ACKS = """
from combee.shuffle import app

build = app.build_app


def patient(*given):
    built = build(*given)
    built.conf.stream_wait_empty = True
    return built


app.build_app = patient
"""


async def test_without_fencing_a_zombie_writes_a_batch_twice(
    kafka: Broker, survives: Survives, tmp_path: Path
) -> None:
    environment = dict.fromkeys(("shuffle", "shuffle-1"), patched(tmp_path, UNFENCED))
    fault = zombie_with_open_windows(WINDOW_S + 5)

    with pytest.raises(AssertionError, match=r"ledger: (batch sequence|double)"):
        await survives(
            kafka.bootstrap_servers,
            "without fencing",
            fault,
            replicas=2,
            environment=environment,
            settings={"max_wait_s": WINDOW_S},
        )


async def exits_in_time(scenario: Scenario) -> bool:
    """Return whether shuffle ends in good time while a window is open."""
    async with running_cluster(scenario) as cluster:
        log, driver = cluster.log(), Driver(cluster.log)
        try:
            async with Progress(log).running() as progress:
                await driver.publish(items(30, seed=1))
                await progress.until(lambda: len(progress.offsets) == len(driver.acked), 60, "not reflected")
                cluster.supervisor.send("shuffle", signal.SIGTERM)
                await cluster.supervisor.ended("shuffle", IN_TIME_S)
        except FatalError:
            return False
        finally:
            await driver.close()
            await log.close()
    return True


@pytest.mark.parametrize("waiting", [False, True])
async def test_open_window_holds_up_the_exit_only_if_faust_waits_for_acks(
    kafka: Broker, topic_prefix: str, tmp_path: Path, *, waiting: bool
) -> None:
    scenario = Scenario(
        bootstrap_servers=kafka.bootstrap_servers,
        prefix=topic_prefix,
        folder=tmp_path,
        settings={"max_wait_s": 600.0},
        environment={"shuffle": patched(tmp_path, WAITING_FOR_ACKS)} if waiting else {},
    )

    assert await exits_in_time(scenario) != waiting
