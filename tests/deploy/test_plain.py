"""docker-compose.yml on a real engine, with the README's commands and a model on this machine."""

import shutil
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.compose import KEY, ROLES, Deployment, configure, deployment
from support.shown import ROOT
from support.waiting import wait_until

pytestmark = pytest.mark.timeout(1200)
RUNS = (ROOT / "examples" / "runs.jsonl").read_text("utf-8")


class Relay(socketserver.ThreadingTCPServer):
    """Passes connections on to a port of loopback: there the stand-in serves, and containers do not reach it."""

    daemon_threads = True

    def __init__(self, host: str, port: int) -> None:
        self.port = port
        super().__init__((host, 0), Passed)


class Passed(socketserver.BaseRequestHandler):
    server: Relay

    def handle(self) -> None:
        with socket.create_connection(("127.0.0.1", self.server.port)) as inner:
            back = threading.Thread(target=copy, args=(inner, self.request))
            back.start()
            copy(self.request, inner)
            back.join()


def copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return


@contextmanager
def model(folder: Path, host: str) -> Iterator[int]:
    """Serve the stand-in model (a simulation) on ``host``; yields its port."""
    ready = folder / "sim.ready"
    serve = [sys.executable, "-m", "combee.cli", "sim", "serve", "--latency", "0.3"]
    process = subprocess.Popen(serve, env={"COMBEE_READY_FILE": str(ready)}, stdout=subprocess.DEVNULL)
    try:
        wait_until(ready.exists, 60, "the stand-in model")
        port = int(ready.read_text().rpartition(":")[2].partition("/")[0])
        with Relay(host, port) as relay:
            threading.Thread(target=relay.serve_forever, daemon=True).start()
            yield int(relay.server_address[1])
            relay.shutdown()
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def running(built: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    inspect = "{{(index .IPAM.Config 0).Gateway}}"
    host = built.docker("network", "inspect", "bridge", "-f", inspect)
    with model(tmp_path_factory.mktemp("model"), host) as port:
        settings = {
            "COMBEE_MODEL": "simulated",
            "COMBEE_BASE_URL": f"http://host.docker.internal:{port}/v1",
        }
        with deployment(built.folder, built.env, settings=settings, model_key="simulated") as project:
            yield project


@pytest.mark.parametrize(
    ("env", "model_key", "said"),
    [
        ("COMBEE_MODEL=openai/gpt-4.1-mini", "", "OpenAI needs a key"),
        (
            "COMBEE_MODEL=openai/gpt-4.1-mini\nOPENAI_API_KEY=in-env",
            "",
            "OPENAI_API_KEY: no secret is taken from .env",
        ),
        ("COMBEE_BASE_URL=http://127.0.0.1:1/v1\nCOMBEE_MODEL=away", "any", "no answer from 127.0.0.1:1"),
        ("", "", "no model is configured"),
    ],
)
def test_what_is_missing_is_said_at_once_and_nothing_starts(
    built: Deployment, env: str, model_key: str, said: str
) -> None:
    configure(built.folder, {}, model_key)
    with (built.folder / ".env").open("a") as file:
        file.write(env)
    try:
        with pytest.raises(AssertionError, match=r'service "check" didn\'t complete successfully: exit 1'):
            built.compose("up", "-d", "--no-build")

        assert said in built.compose("logs", "check")
        assert [one.service for one in built.containers() if one.state == "running"] == []
    finally:
        built.compose("down", "-v")


def test_a_file_of_secrets_that_is_missing_is_named(built: Deployment) -> None:
    (built.folder / ".env").write_text((ROOT / "deploy" / ".env.example").read_text("utf-8"))
    shutil.rmtree(built.folder / "secrets", ignore_errors=True)
    try:
        said = built.compose("up", "-d", "--no-build", check=False)

        assert "secrets/model-key" in said or "secrets/gateway-keys.toml" in said
        assert built.docker("ps", "-q") == ""
    finally:
        built.compose("down", "-v")


def test_the_commands_of_the_readme_learn_and_prove_it(running: Deployment) -> None:
    learn = ("run", "--rm", "-T", "reflect", "learn", "-", "--playbook", "support/refunds")
    running.compose(*learn, stdin=RUNS)
    playbook = running.compose("run", "--rm", "-T", "reflect", "playbook", "show", "support/refunds")
    ledger = running.compose("run", "--rm", "-T", "reflect", "ledger")

    assert "support/refunds" in playbook
    assert "every promise was kept" in ledger
    assert running.ledger()["applied"] == len(RUNS.splitlines())


def test_containers_have_no_privilege_and_ours_write_nowhere(running: Deployment) -> None:
    limits = "{{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}} {{.HostConfig.SecurityOpt}}"
    for one in running.containers():
        shown = running.docker("inspect", "-f", limits, one.id)
        is_kafkas = one.service in {"kafka", "controller", "volume"}
        assert shown == f"{str(not is_kafkas).lower()} [ALL] [no-new-privileges:true]"
        if one.service in {"kafka", "controller"}:
            assert int(running.docker("inspect", "-f", "{{.HostConfig.Memory}}", one.id)) > 0
            java = running.docker("exec", one.id, "sh", "-c", "tr '\\0' ' ' < /proc/1/cmdline")
            assert ("-Xmx256m" if one.service == "controller" else "-Xmx512m") in java


def test_no_secret_is_shown_by_the_engine_and_each_is_only_where_it_is_needed(running: Deployment) -> None:
    has = set()
    for one in running.containers():
        shown = running.docker("inspect", one.id)
        assert KEY not in shown
        assert '"COMBEE_API_KEY=' not in shown
        if one.service in ROLES:
            look = "cat /run/secrets/model-key 2> /dev/null || true"
            if running.compose("exec", "-T", one.service, "sh", "-c", look):
                has.add(one.service)

    assert has == {"reflect", "scan"}


def test_what_is_published_is_published_on_loopback(running: Deployment) -> None:
    ports = running.docker("ps", "--format", "{{.Ports}}")

    assert "0.0.0.0" not in ports  # noqa: S104 - nobody binds it here
    assert "127.0.0.1:8750->8750" in ports
