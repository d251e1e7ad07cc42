"""Without an address agents and verbs find the deployment that runs on this machine; of two none is chosen."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import platformdirs
import pytest

from combee.adapters.ports import ConfigurationError, FatalError
from combee.cli.shared.log import open_broker
from combee.cli.shared.settings import deployed_settings
from combee.process.running import announce, running, user_data_dir
from combee.process.settings.loading import environment, load_settings
from combee.sdk import Client
from combee.sdk import client as client_module
from combee.sdk.client import default_client
from support.reading import run
from support.shown import ROOT

HOLDS = """
import asyncio, json, sys
from pathlib import Path
from combee.assembly.local.stack_file import sole_stack
from combee.process.running import UP
from combee.process.settings.loading import load_settings

async def hold():
    folder, prefix, state = sys.argv[1:]
    settings = load_settings(data_dir=folder, topic_prefix=prefix)
    async with sole_stack(settings, UP, Path(folder) / "run", tell=print) as add:
        add(json.loads(state))
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(hold())
"""
UP_AT = '{"bootstrap_servers": "127.0.0.1:%d", "http": "http://127.0.0.1:%d"}'

Hold = Callable[..., "subprocess.Popen[bytes]"]


@contextmanager
def holding(folder: Path, *, prefix: str = "combee", state: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a process that holds a data directory as ``combee up`` does."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", HOLDS, str(folder), prefix, state]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"held\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give this user a data folder of the test's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "combee"


@pytest.fixture
def hold(home: Path, tmp_path: Path) -> Iterator[Hold]:  # noqa: ARG001 - the processes inherit it
    with ExitStack() as held:

        def begin(name: str, port: int, **more: str) -> "subprocess.Popen[bytes]":
            more = {"state": UP_AT % (port + 1, port), **more}
            return held.enter_context(holding(tmp_path / name, **more))

        yield begin


@pytest.fixture
def no_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_default", [])


def test_a_client_without_an_address_finds_what_runs_here_and_says_which(
    hold: Hold, caplog: pytest.LogCaptureFixture
) -> None:
    process = hold("a", 16001)

    with Client() as client:
        assert client.address == "http://127.0.0.1:16001"
    assert f"using combee up (process {process.pid}, http://127.0.0.1:16001, data in" in caplog.text


def test_a_client_without_the_gateways_library_uses_kafka_with_the_deployments_prefix(
    hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold("a", 16001, prefix="shop")
    monkeypatch.setattr("combee.sdk.address.find_spec", lambda _name: None)

    assert Client().address == "127.0.0.1:16002"


async def test_a_verb_without_the_embedded_broker_s_extra_uses_the_brokers_of_what_runs_here(
    hold: Hold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "combee.adapters.embedded_kafka", None)  # as if it were not installed
    settings = load_settings(data_dir=str(tmp_path / "a"))
    with pytest.raises(ConfigurationError, match="the embedded one is not installed"):
        async with open_broker(settings):
            pass
    hold("a", 16001)
    async with open_broker(settings) as servers:
        assert servers == "127.0.0.1:16002"


def test_with_two_deployments_a_client_raises_and_names_both(hold: Hold, tmp_path: Path) -> None:
    pids = hold("a", 16001).pid, hold("b", 16003).pid

    with pytest.raises(FatalError, match="2 deployments run on this machine") as refused:
        Client()
    assert all(f"process {pid}" in str(refused.value) for pid in pids)
    assert "COMBEE_DATA_DIR" in str(refused.value)
    assert str(tmp_path / "b") in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("COMBEE_DATA_DIR", "b"),
        ("COMBEE_TOPIC_PREFIX", "second"),
        ("COMBEE_GATEWAY_URL", "http://127.0.0.1:16003"),
    ],
)
def test_of_two_the_environment_names_one_for_clients_and_verbs(
    name: str, value: str, hold: Hold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold("a", 16001)
    hold("b", 16003, prefix="second")
    monkeypatch.setenv(name, str(tmp_path / value) if name == "COMBEE_DATA_DIR" else value)

    assert Client().address == "http://127.0.0.1:16003"
    settings = deployed_settings()
    assert (settings.worker.data_dir, settings.kafka.topic_prefix) == (tmp_path / "b", "second")


@pytest.mark.usefixtures("no_default")
def test_of_two_the_default_client_chooses_none_and_warns(
    hold: Hold, caplog: pytest.LogCaptureFixture
) -> None:
    hold("a", 16001)
    hold("b", 16003)

    with default_client() as client:
        assert client.playbook("support/refunds", fallback="Be kind.").render() == "Be kind."
    assert "no playbook is shown: 2 deployments run on this machine" in caplog.text


def test_a_verb_uses_the_only_deployment_and_says_so_and_of_two_it_chooses_none(
    hold: Hold, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hold("a", 16001)
    assert deployed_settings().worker.data_dir == tmp_path / "a"
    assert "using combee up (process" in capsys.readouterr().err

    hold("b", 16003)
    refused = run("top", "--once")
    assert refused.exit_code == 2
    assert "2 deployments run on this machine" in refused.stderr


def test_a_deployment_on_a_cluster_is_found_with_its_brokers(
    hold: Hold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMBEE_BOOTSTRAP_SERVERS", "127.0.0.1:16002")
    hold("a", 16001)
    monkeypatch.delenv("COMBEE_BOOTSTRAP_SERVERS")

    settings = deployed_settings()
    assert settings.kafka.bootstrap_servers == "127.0.0.1:16002"
    assert settings.worker.data_dir == tmp_path / "a"


def test_a_deployment_that_still_starts_is_named_and_not_used(hold: Hold) -> None:
    hold("a", 16001, state='{"bootstrap_servers": "127.0.0.1:16002"}')

    with pytest.raises(FatalError, match=r"still starting.* is not up yet"):
        Client()


def test_a_verb_does_not_use_a_deployment_on_a_cluster_that_still_starts(
    hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMBEE_BOOTSTRAP_SERVERS", "127.0.0.1:16002")
    hold("a", 16001, state="{}")
    monkeypatch.delenv("COMBEE_BOOTSTRAP_SERVERS")

    refused = run("top", "--once")
    assert refused.exit_code == 2
    assert "is not up yet: try again when it says so" in refused.stderr


def test_a_verb_refuses_a_gateways_address_that_no_deployment_here_has(
    hold: Hold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold("a", 16001)
    monkeypatch.setenv("COMBEE_GATEWAY_URL", "http://localhost:16001/")
    assert deployed_settings().worker.data_dir == tmp_path / "a"

    monkeypatch.setenv("COMBEE_GATEWAY_URL", "http://elsewhere:16001")
    with pytest.raises(ConfigurationError, match="COMBEE_GATEWAY_URL is http://elsewhere:16001") as refused:
        deployed_settings()
    assert "http://127.0.0.1:16001" in str(refused.value)
    assert deployed_settings(bootstrap_servers="kafka:9092").kafka.bootstrap_servers == "kafka:9092"


def test_another_spelling_of_the_users_folder_is_one_deployment(
    home: Path, hold: Hold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir(parents=True)
    (tmp_path / "other").symlink_to(tmp_path / "home")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
    hold("home/combee", 16001)

    assert [one.http for one in running(None, environment())] == ["http://127.0.0.1:16001"]


def test_without_a_home_folder_nothing_is_found_or_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)

    assert running(None, environment()) == ()
    assert announce(tmp_path / "stack-combee.json", environment()) is None


def test_a_killed_deployment_is_not_found_and_the_next_one_removes_its_link(
    hold: Hold, home: Path, tmp_path: Path
) -> None:
    killed = hold("a", 16001)
    killed.kill()
    killed.wait()
    assert running(None, environment()) == ()
    assert len(list(home.iterdir())) == 1

    hold("b", 16003)
    assert [link.resolve().parent for link in home.iterdir()] == [tmp_path / "b"]


def test_a_stack_file_that_others_can_write_is_not_believed(hold: Hold, tmp_path: Path) -> None:
    hold("a", 16001)
    (tmp_path / "a" / "stack-combee.json").chmod(0o666)

    with pytest.raises(FatalError, match="no 'combee up' runs on this machine"):
        Client()


def test_the_users_folder_is_the_one_of_the_embedded_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", "relative", "/elsewhere"):
        monkeypatch.setenv("XDG_DATA_HOME", value)
        assert user_data_dir(environment()) == platformdirs.user_data_path("combee")


def test_no_example_names_a_port_that_another_deployment_may_have() -> None:
    texts = {path: path.read_text("utf-8") for path in (ROOT / "examples").rglob("*.*") if path.is_file()}

    assert len(texts) > 10
    assert [path.name for path, text in texts.items() if "8750" in text] == []
    readme = (ROOT / "README.md").read_text("utf-8")
    assert re.findall(r".*8750.*", readme) == re.findall(r".*(?:is up|export).*8750.*", readme)
