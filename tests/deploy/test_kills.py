"""Kafka killed with SIGKILL under load, and started again: what is lost (nothing), and what it costs.

By default the two topologies that are shipped, each kill once; ``--kills N`` measures all with N kills each, for the
table of docs/results/reliability.md. The model is a stand-in: a simulation.
"""

import asyncio
from pathlib import Path

import pytest

from support import kafka_kills
from support.compose import SIMULATED, Deployment, deployment
from support.kafka_kills import SHIPPED, THREE_NODES, TOPOLOGIES, Kill, Load, Topology, probe

pytestmark = pytest.mark.timeout(7200)
PLAYBOOK = "support/kills"
WATCHED = ("batches", "scan.0", "updates", "playbooks")
"""Topics of Combee that are written in transactions."""
TABLE = "kafka-kills.csv"
KILLS = pytest.StashKey[list[Kill]]()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "topology" in metafunc.fixturenames:
        topologies = TOPOLOGIES if metafunc.config.getoption("--kills") else SHIPPED
        metafunc.parametrize("topology", topologies, ids=[one.name for one in topologies])


async def test_kills_lose_nothing_and_leave_nothing_unreadable(
    built: Deployment, topology: Topology, pytestconfig: pytest.Config
) -> None:
    times = pytestconfig.getoption("--kills") or 1
    if topology.override:
        (built.folder / topology.files[0]).write_text(topology.override)
    waiting = [killed for killed in topology.kills for _ in range(times)]
    kills: list[Kill] = []
    while waiting:  # in a new deployment, if the one before is spoilt
        with deployment(built.folder, built.env, SIMULATED, *topology.files, settings={}) as project:
            kills += await _kills(project, topology, waiting, pytestconfig)

    if topology in SHIPPED:
        assert [one for one in kills if one.stale or one.spoilt] == []


async def _kills(
    project: Deployment, topology: Topology, waiting: list[tuple[str, ...]], config: pytest.Config
) -> list[Kill]:
    """Take kills off the list and measure each, until one spoils the deployment."""
    load = Load(project, PLAYBOOK)
    kills: list[Kill] = []
    async with probe(WATCHED, replicas=3 if THREE_NODES in topology.files else 1) as probing, load.running():
        async with asyncio.timeout(kafka_kills.RECOVERED_S):
            while len(load.versions) < 1:  # noqa: ASYNC110 - the first one of the playbook
                await asyncio.sleep(kafka_kills.LOOK_S)
        while waiting and not (kills and kills[-1].spoilt):
            kills.append(await kafka_kills.kill(project, topology, waiting.pop(0), load, probing))
            _record(config, kills[-1])
    if kills[-1].spoilt:  # there is nothing to wait for
        print(await asyncio.to_thread(project.ledger))  # noqa: T201 - why
        print(await asyncio.to_thread(project.compose, "logs", "--no-color", "--tail", "300"))  # noqa: T201 - why
        return kills
    accepted = len(load.accepted)
    await asyncio.to_thread(project.wait_applied, accepted)
    ledger = await asyncio.to_thread(project.ledger)
    # One may have been published and not accepted, when the load ended.
    assert accepted <= ledger["applied"] + ledger["pending"] <= accepted + 1
    assert {name: ledger[name] for name in ("lost", "double", "dead_lettered", "violations")} == {
        **dict.fromkeys(("lost", "double", "dead_lettered"), 0),
        "violations": [],
    }
    return kills


def _record(config: pytest.Config, kill: Kill) -> None:
    """Write the table anew after each kill: a run that fails later has measured, too."""
    seen = config.stash.setdefault(KILLS, [])
    seen.append(kill)
    print(f"\n{kill}")  # noqa: T201 - a measurement
    folder: Path | None = config.getoption("--fault-results")
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TABLE).write_text(kafka_kills.table(seen), "utf-8")
