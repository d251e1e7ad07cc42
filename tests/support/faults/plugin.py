"""The fault suite's options and fixtures, and the table of its outcomes."""

import logging
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from support.faults import results

if TYPE_CHECKING:
    from support.faults.run import Fault, Outcome

PROPERTY = "fault outcome"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("combee")
    group.addoption(
        "--seed", type=int, action="append", help="of the faults; may be given several times (default 1)"
    )
    group.addoption(
        "--fault-results",
        type=Path,
        default=None,
        help="folder whose JSON and table of outcomes this run adds to",
    )
    group.addoption("--soak-minutes", type=float, default=0.0, help="run the soak, for so long")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "fault_seed" in metafunc.fixturenames:
        seeds = metafunc.config.getoption("--seed") or [1]
        metafunc.parametrize("fault_seed", seeds, ids=[f"seed{seed}" for seed in seeds])


class Survives(Protocol):
    """Runs a fault against a broker under this test's prefix and seed; records the outcome."""

    async def __call__(
        self, servers: str, name: str, fault: "Fault", *, expect_dead: int | None = 0, **scenario: object
    ) -> "Outcome": ...


@pytest.fixture
def survives(
    topic_prefix: str,
    tmp_path: Path,
    fault_seed: int,
    record_property: Callable[[str, object], None],
    caplog: pytest.LogCaptureFixture,
    pytestconfig: pytest.Config,
) -> Survives:
    caplog.set_level(logging.CRITICAL, logger="aiokafka")  # it says thousands of times that a broker is away

    async def run(
        servers: str, name: str, fault: "Fault", *, expect_dead: int | None = 0, **scenario: object
    ) -> "Outcome":
        from support.faults.cluster import Scenario  # noqa: PLC0415 - the same
        from support.faults.run import survive  # noqa: PLC0415 - only tests that run processes load them

        plain = Scenario(bootstrap_servers=servers, prefix=topic_prefix, folder=tmp_path)
        set_up = replace(plain, **scenario)  # type: ignore[arg-type]  # the fields of Scenario, by name
        outcome = await survive(set_up, fault, name=name, seed=fault_seed, expect_dead=expect_dead)
        record_property(PROPERTY, asdict(outcome))
        if folder := pytestconfig.getoption("--fault-results"):
            results.add(folder, asdict(outcome))
        return outcome

    return run


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show every outcome of this session."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    outcomes: list[Any] = [
        value
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for key, value in report.user_properties
        if key == PROPERTY
    ]
    if not outcomes:
        return
    terminalreporter.write_sep("-", "faults")
    terminalreporter.write_line(results.table(outcomes))
