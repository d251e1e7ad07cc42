"""docker-compose.yml on a real engine, with the README's commands and a model on this machine."""

import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.compose import Deployment, deployment
from support.polling import wait_until
from support.shown import ROOT

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
            "COMBEE_API_KEY": "simulated",
        }
        with deployment(built.folder, built.env, settings=settings) as project:
            yield project


def test_nothing_starts_without_a_key_for_the_gateway(built: Deployment) -> None:
    (built.folder / ".env").write_text((ROOT / "deploy" / ".env.example").read_text("utf-8"))
    said = built.compose("up", "-d", "--no-build", check=False)

    assert "make a key for the gateway and put it into .env" in said
    assert built.docker("ps", "-q") == ""


def test_the_commands_of_the_readme_learn_and_prove_it(running: Deployment) -> None:
    learn = ("run", "--rm", "-T", "reflect", "learn", "-", "--playbook", "support/refunds")
    running.compose(*learn, stdin=RUNS)
    playbook = running.compose("run", "--rm", "-T", "reflect", "playbook", "show", "support/refunds")
    ledger = running.compose("run", "--rm", "-T", "reflect", "ledger")

    assert "support/refunds" in playbook
    assert "every promise was kept" in ledger
    assert running.ledger()["applied"] == len(RUNS.splitlines())


def test_containers_write_nowhere_and_have_no_privilege(running: Deployment) -> None:
    for one in running.containers():
        if one.service != "kafka":
            shown = running.docker("inspect", "-f", "{{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}}", one.id)
            assert shown == "true [ALL]"


def test_what_is_published_is_published_on_loopback(running: Deployment) -> None:
    ports = running.docker("ps", "--format", "{{.Ports}}")

    assert "0.0.0.0" not in ports  # noqa: S104 - nobody binds it here
    assert "127.0.0.1:8750->8750" in ports
