"""Lanes, the environment's clean state, and one real Kafka a session."""

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from _pytest.runner import runtestprotocol

from support import lanes

if TYPE_CHECKING:
    from support.broker import Broker

collect_ignore = ["integrations"]  # each needs an environment of its own: make test-integrations
pytest_plugins = ("support.faults.plugin",)

TESTS = Path(__file__).parent
SCRUBBED = ("COMBEE_", "OPENAI_", "OTEL_")
ENVIRONMENT = pytest.StashKey[dict[str, str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("combee")
    group.addoption("--broker", choices=lanes.BROKERS, default="embedded", help="which Kafka the tests use")
    group.addoption("--bootstrap-servers", default=None, help="the Kafka of --broker=external")
    group.addoption("--shared", type=Path, default=None, help="shared input data (default: ../shared)")
    group.addoption("--screenshots", action="store_true", help="take the pictures of docs/images anew")
    group.addoption("--faults", action="store_true", help="run the long fault suite too")
    group.addoption("--attacks", action="store_true", help="run the attack suite too")
    group.addoption("--extras", action="store_true", help="install each extra into a fresh environment too")
    group.addoption(
        "--kills", type=int, default=0, help="kills per topology of Kafka (tests/deploy/test_kills.py)"
    )
    group.addoption("--deploy", action="store_true", help="run the deployment on a container engine too")


def pytest_configure(config: pytest.Config) -> None:
    # A shell makes what it starts in the background ignore Ctrl-C, and every process of a test would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    environ = os.environ  # noqa: TID251 - a setting of the machine must not decide a test
    config.stash[ENVIRONMENT] = dict(environ)
    for name in [name for name in environ if name.startswith(SCRUBBED)]:
        del environ[name]
    # Agents and verbs look there for what runs: neither another process of the tests nor the machine's own counts.
    environ["XDG_DATA_HOME"] = str(Path(tempfile.gettempdir()) / f"combee-tests-{os.getpid()}")
    # Hundreds of processes start here, and each would compile all of the code again.
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def pytest_unconfigure() -> None:
    shutil.rmtree(Path(tempfile.gettempdir()) / f"combee-tests-{os.getpid()}", ignore_errors=True)


def pytest_sessionstart() -> None:
    """Look for no garbage while modules are imported: nearly all of that stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Let the collector pass over what lives as long as the run, and come by less often: a tenth of a lane."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Look once for what the tests left open; pytest would look twice."""
    gc.collect()
    gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    lane = next((name for name in lanes.ASKED_FOR if collection_path == TESTS / name), None)
    if lane is None or config.getoption(f"--{lane}"):
        return None
    wanted = lanes.wants(lane, config.invocation_params.args, config.getoption("markexpr"), TESTS)
    return None if wanted else True


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let every other process read folders from their end: what one has compiled the other finds on the disk."""
    report = yield
    if isinstance(collector, pytest.Dir) and worker_number(collector.config) % 2 == 1:
        report.result.reverse()
    return report


def worker_number(config: pytest.Config) -> int:
    """Return which of the processes of a run this is; 0 if it is the only one."""
    return int(getattr(config, "workerinput", {"workerid": "gw0"})["workerid"].removeprefix("gw"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # all processes of a run must know the tests in one order
        items.sort(key=lambda item: item.nodeid.partition("::")[0])
        processes = int(config.workerinput["workercount"])
        items[:] = [
            items[place] for place in lanes.shared_out([item.path for item in items], TESTS, processes)
        ]
    shared = shared_folder(config)
    for item in items:
        for mark in lanes.marks(lanes.lane_of(item.path, TESTS), fixtures_of(item)):
            item.add_marker(mark)
        if item.get_closest_marker("shared") and not shared.is_dir():
            item.add_marker(pytest.mark.skip(reason=f"no shared input data at {shared} (--shared=FOLDER)"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if reason := lanes.refusal(lanes.lane_of(item.path, TESTS), fixtures_of(item)):
        pytest.fail(reason, pytrace=False)


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Send of a test only what is shown: to read the rest took the first process of a run half of its time."""
    asked = item.config.option
    if not hasattr(item.config, "workerinput") or asked.verbose > 0 or asked.durations is not None:
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if lanes.is_shown(report.when, report.outcome):
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def fixtures_of(item: pytest.Item) -> list[str]:
    return item.fixturenames if isinstance(item, pytest.Function) else []


def shared_folder(config: pytest.Config) -> Path:
    return (config.getoption("--shared") or config.rootpath.parent / "shared").absolute()


@pytest.fixture(scope="session")
def shared(request: pytest.FixtureRequest) -> Path:
    return shared_folder(request.config)


@pytest.fixture(scope="session")
def machine_env(request: pytest.FixtureRequest) -> dict[str, str]:
    return request.config.stash[ENVIRONMENT]


@pytest.fixture(scope="session")
def kafka(
    request: pytest.FixtureRequest, machine_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator["Broker"]:
    from support.broker import broker  # noqa: PLC0415 - most processes of a run need none, the first one least

    kind, servers = (request.config.getoption(name) for name in ("--broker", "--bootstrap-servers"))
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if hasattr(request.config, "workerinput") else own) / "kafka"
    with broker(kind, env=machine_env, folder=folder, bootstrap_servers=servers) as running:
        yield running


@pytest.fixture
def topic_prefix() -> str:
    return f"t{uuid4().hex[:8]}"
