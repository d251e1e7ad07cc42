"""deploy/simulated.yml on a real engine: every service, with replicas, crashes, a restarted Kafka and an upgrade.

All tests share one deployment, and each leaves it healthy. The model is a stand-in: a simulation.
"""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from support.compose import ROLES, SIMULATED, Deployment, build, deployment
from support.shown import ROOT
from support.waiting import wait_until

pytestmark = pytest.mark.timeout(1800)
LINES = [json.loads(line) for line in (ROOT / "examples" / "runs.jsonl").read_text("utf-8").splitlines()]
TRACES = [line for line in LINES if "trace_id" in line]
REFLECTIONS = [line for line in LINES if "reflection_id" in line]
A_ROUND = len(TRACES) + len(REFLECTIONS)
"""The example's sample is a question for ``combee learn``: nobody sends it to the gateway."""
PLAYBOOK = "support/refunds"
SCANS = {"scan": 4}
KILL_ALL = ("bash", "-c", "kill -9 -1")
"""In a container: every process but the first. The engine would not restart what it killed itself."""
UPGRADE = ("gateway", "publish", "scan", "shuffle", "control", "reflect")
"""In the order that docs/guide/cluster.md gives."""
NEW_IMAGE = "combee:test-new"


@pytest.fixture(scope="module")
def running(built: Deployment) -> Iterator[Deployment]:
    with deployment(built.folder, built.env, SIMULATED, settings={"COMBEE_LOG_JSON": "true"}) as project:
        yield project


class Learned:
    """How much the shared deployment has learned so far; every round learns the same runs under other ids."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._rounds = 0

    def publish(self) -> None:
        self._rounds += 1
        for kind, lines in (("trace", TRACES), ("reflection", REFLECTIONS)):
            named = [{**line, f"{kind}_id": f"{self._rounds}-{line[f'{kind}_id']}"} for line in lines]
            self._deployment.publish(f"{kind}s", named, PLAYBOOK)

    def settle(self) -> None:
        """Wait until all is applied, and read the ledger."""
        self._deployment.wait_applied(self._rounds * A_ROUND)
        ledger = self._deployment.ledger()
        kept = {name: ledger[name] for name in ("applied", "pending", "dead_lettered", "lost", "double")}
        assert kept == {
            "applied": self._rounds * A_ROUND,
            **dict.fromkeys(("pending", "dead_lettered", "lost", "double"), 0),
        }
        assert ledger["violations"] == []


@pytest.fixture(scope="module")
def learned(running: Deployment) -> Learned:
    return Learned(running)


def test_the_example_runs_are_learned_through_the_gateway(running: Deployment, learned: Learned) -> None:
    learned.publish()
    learned.settle()

    calls = running.ledger()["model_calls"]
    assert calls["made"] == calls["planned"] + calls["checks"]


def test_one_image_serves_every_service(running: Deployment) -> None:
    ours = [one for one in running.containers() if one.service not in {"kafka", "controller", "volume"}]

    assert {running.docker("inspect", "-f", "{{.Image}}", one.id) for one in ours} == {
        running.docker("image", "inspect", "-f", "{{.Id}}", running.env["COMBEE_IMAGE"])
    }
    assert {one.service for one in ours} == {*ROLES, "check", "topics", "sim", "key"}


def test_four_scans_share_the_work(running: Deployment, learned: Learned) -> None:
    running.compose("up", "-d", "--no-build", "--scale", "scan=4")
    running.wait_healthy(SCANS)
    learned.publish()
    learned.settle()


def test_a_stopped_service_drains(running: Deployment, learned: Learned) -> None:
    learned.publish()
    running.compose("stop", "reflect", "scan", "shuffle")
    ended = [one for role in ("reflect", "scan", "shuffle") for one in running.containers(role)]
    codes = [running.docker("inspect", "-f", "{{.State.ExitCode}}", one.id) for one in ended]
    last_lines = running.compose("logs", "--no-color", "--tail", "1", "reflect", "scan", "shuffle")

    assert codes == ["0"] * 6
    assert last_lines.count('"stopped"') == 6
    running.compose("up", "-d", "--no-build", "--scale", "scan=4")
    running.wait_healthy(SCANS)
    learned.settle()


def test_services_that_are_killed_come_back(running: Deployment, learned: Learned) -> None:
    learned.publish()
    for role in ("reflect", "shuffle", "scan", "publish", "control"):
        for one in running.containers(role):
            running.docker("exec", "-d", one.id, *KILL_ALL)
    wait_until(
        lambda: all(restarts(running, role) for role in ("reflect", "shuffle", "scan", "publish", "control")),
        60,
        "a restart of what was killed",
    )
    running.wait_healthy(SCANS)
    learned.settle()


def test_kafka_is_made_anew_on_its_volume(running: Deployment, learned: Learned) -> None:
    before = running.containers("kafka")[0].id
    learned.publish()
    running.compose("up", "-d", "--no-build", "--no-deps", "--force-recreate", "kafka")
    running.wait_healthy(SCANS)

    assert running.containers("kafka")[0].id != before
    learned.settle()


def test_a_new_version_takes_over_role_by_role(running: Deployment, learned: Learned) -> None:
    project = running.folder / "pyproject.toml"
    project.write_text(project.read_text("utf-8").replace('version = "0.1.0"', 'version = "0.1.1"'))
    new = replace(running, env={**running.env, "COMBEE_IMAGE": NEW_IMAGE})
    build(new)
    new.compose("up", "--no-build", "--no-deps", "topics")
    for role in UPGRADE:
        learned.publish()
        replicas = ("--scale", "scan=4") if role == "scan" else ()
        new.compose("up", "-d", "--no-build", "--no-deps", *replicas, role)
        new.wait_healthy(SCANS)
    learned.settle()

    versions = {new.compose("exec", "-T", role, "combee", "--version").strip() for role in UPGRADE}
    assert versions == {"combee 0.1.1"}
    new.docker("image", "rm", "-f", NEW_IMAGE)


def restarts(project: Deployment, role: str) -> int:
    """Return how often the engine has restarted the containers of a role."""
    return sum(
        int(project.docker("inspect", "-f", "{{.RestartCount}}", one.id)) for one in project.containers(role)
    )
