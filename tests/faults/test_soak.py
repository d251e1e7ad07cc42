"""Half load and random faults for long: a clean ledger, flat memory, flat descriptors."""

from pathlib import Path

import pytest

from support.faults.brokers import fronted_broker
from support.faults.cluster import ROLES
from support.faults.plugin import Survives
from support.faults.soak import Soak, write_report

pytestmark = pytest.mark.timeout(0)  # as long as asked; every wait inside has a deadline


async def test_soak_ends_with_a_clean_ledger_and_flat_processes(
    tmp_path: Path,
    machine_env: dict[str, str],
    survives: Survives,
    fault_seed: int,
    pytestconfig: pytest.Config,
) -> None:
    minutes = pytestconfig.getoption("--soak-minutes")
    if not minutes:
        pytest.skip("only with --soak-minutes")
    reporter = pytestconfig.pluginmanager.getplugin("terminalreporter")
    async with fronted_broker(tmp_path, machine_env) as broker:
        soak = Soak(seconds=60 * minutes, seed=fault_seed, broker=broker, say=reporter.write_line)
        if minutes < 5:  # a trial would see hardly any fault
            soak.gaps_s = (5.0, 10.0)
        through = {"COMBEE_BOOTSTRAP_SERVERS": broker.address}
        names = [f"{role}{slot}" for role in ROLES for slot in ("", "-1")]
        outcome = await survives(
            broker.bootstrap_servers,
            "soak",
            soak,
            replicas=2,
            environment=dict.fromkeys(names, through),
        )
    if folder := pytestconfig.getoption("--fault-results"):
        write_report(folder, soak, outcome)
    found = soak.flatness()
    assert found.keys() == set(ROLES)
    assert all(one is not None and one.flat for one in found.values()), found
