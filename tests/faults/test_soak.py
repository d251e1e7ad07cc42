"""Half load and random faults for long: a clean ledger, flat memory, flat descriptors."""

import pytest

from support.broker import Broker
from support.faults_plugin import Survives
from support.faults_stage import ROLES
from support.soak import Soak

pytestmark = pytest.mark.timeout(0)  # as long as asked; every wait inside has a deadline


async def test_soak_ends_with_a_clean_ledger_and_flat_processes(
    kafka: Broker, survives: Survives, fault_seed: int, pytestconfig: pytest.Config
) -> None:
    minutes = pytestconfig.getoption("--soak-minutes")
    if not minutes:
        pytest.skip("only with --soak-minutes")
    reporter = pytestconfig.pluginmanager.getplugin("terminalreporter")
    soak = Soak(seconds=60 * minutes, seed=fault_seed, say=reporter.write_line)
    if minutes < 5:  # a trial would see hardly any fault
        soak.gaps_s = (5.0, 10.0)
    try:
        await survives(kafka.bootstrap_servers, "soak", soak, replicas=2)
    finally:
        if folder := pytestconfig.getoption("--fault-results"):
            soak.write(folder)
    found = soak.flatness()
    assert found.keys() == set(ROLES)
    assert all(one is not None and one.flat for one in found.values()), found
