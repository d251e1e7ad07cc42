"""Kafka of docker-compose.yml: the old volume is carried over, and an unclean stop is waited out."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from support.compose import SIMULATED, Deployment, configure, deployment
from support.kafka_kills import FORMER
from support.shown import ROOT
from support.waiting import wait_until

pytestmark = pytest.mark.timeout(1200)
LINES = [json.loads(line) for line in (ROOT / "examples" / "runs.jsonl").read_text("utf-8").splitlines()]
REFLECTIONS = [line for line in LINES if "reflection_id" in line]
PLAYBOOK = "support/refunds"
FILES = ("docker-compose.yml", SIMULATED)
WAITS = "waiting for the controller to end the old session"
ENDED_BY_SIGTERM = "143"


@pytest.fixture
def former(built: Deployment) -> Iterator[Deployment]:
    """Yield a deployment on the former topology, which has learned."""
    (built.folder / "former.yml").write_text(FORMER)
    with deployment(built.folder, built.env, SIMULATED, "former.yml", settings={}) as project:
        project.publish("reflections", REFLECTIONS, PLAYBOOK)
        project.wait_applied(len(REFLECTIONS))
        yield project


def _learned(project: Deployment) -> tuple[object, ...]:
    ledger = project.ledger()
    shown = project.ask("GET", f"/v1/playbooks/{PLAYBOOK}").json()
    return (ledger["applied"], ledger["lost"], ledger["violations"], shown["version"], shown["entries"])


@pytest.mark.parametrize("stopped", ["cleanly", "by SIGKILL"])
def test_the_volume_of_the_former_topology_is_refused_and_carried_over_with_nothing_lost(
    former: Deployment, stopped: str
) -> None:
    learned = _learned(former)
    new = Deployment(folder=former.folder, env=former.env, files=FILES, key=former.key)
    if stopped == "by SIGKILL":
        former.docker("kill", "-s", "KILL", former.containers("kafka")[0].id)
    former.compose("down", "-t", "20")

    # The start refuses, at once, and says what to do.
    with pytest.raises(AssertionError, match=r'service "volume" didn\'t complete successfully: exit 1'):
        new.compose("up", "-d", "--no-build")
    assert "docker compose run --rm carry-over" in new.compose("logs", "volume")
    assert not [one for one in new.containers("kafka") if one.state == "running"]
    new.compose("down")

    # Refused, nothing is lost: the former topology still has all of it.
    former.compose("up", "-d", "--no-build")
    former.wait_healthy()
    assert _learned(former) == learned
    # While it runs nothing is carried over.
    said = new.compose("--profile", "carry-over", "run", "--rm", "carry-over", check=False)
    assert "Kafka is running at kafka:19092" in said
    former.compose("down", "-t", "20")

    said = new.compose("run", "--rm", "carry-over")
    assert "carried over" in said
    new.compose("up", "-d", "--no-build")
    new.wait_healthy()
    assert _learned(new) == learned
    folders = new.compose("exec", "-T", "kafka", "sh", "-c", "ls /var/lib/kafka/data").split()
    assert [folder for folder in folders if folder.endswith("-stray")] == []
    # And it learns on.
    more = [{**line, "reflection_id": f"later-{line['reflection_id']}"} for line in REFLECTIONS]
    new.publish("reflections", more, PLAYBOOK)
    new.wait_applied(2 * len(REFLECTIONS))
    assert new.ledger()["violations"] == []
    assert "nothing to carry over" in new.compose("run", "--rm", "carry-over")


@pytest.fixture
def kafka_alone(built: Deployment) -> Iterator[Deployment]:
    """Yield a project of which only Kafka runs."""
    configure(built.folder, {})
    project = Deployment(folder=built.folder, env=built.env, files=FILES)
    try:
        project.compose("up", "-d", "--no-build", "--wait", "kafka")
        yield project
    finally:
        project.compose("down", "-v", "-t", "5", check=False)


def _said(project: Deployment) -> str:
    return project.compose("logs", "--no-color", "kafka")


def test_a_clean_restart_does_not_wait_and_one_after_a_kill_does(kafka_alone: Deployment) -> None:
    kafka_alone.compose("stop", "-t", "300", "kafka")  # on a busy machine a clean end may take long
    kafka_alone.compose("up", "-d", "--no-build", "--wait", "kafka")
    assert WAITS not in _said(kafka_alone)

    kafka_alone.compose("kill", "-s", "KILL", "kafka")
    began = time.monotonic()
    kafka_alone.compose("up", "-d", "--no-build", "--wait", "kafka")
    assert WAITS in _said(kafka_alone)
    assert time.monotonic() - began > 11  # its session, 9 s, and 2 more


def test_sigterm_during_the_wait_ends_it_at_once(kafka_alone: Deployment) -> None:
    kafka_alone.compose("kill", "-s", "KILL", "kafka")
    container = kafka_alone.containers("kafka")[0].id
    kafka_alone.docker("start", container)
    wait_until(lambda: WAITS in _said(kafka_alone), 30, "the wait")
    began = time.monotonic()
    kafka_alone.docker("stop", "-t", "60", container)

    assert time.monotonic() - began < 9  # less than the wait
    assert kafka_alone.docker("inspect", "-f", "{{.State.ExitCode}}", container) == ENDED_BY_SIGTERM


def test_a_controller_that_does_not_come_is_said(kafka_alone: Deployment) -> None:
    kafka_alone.compose("kill", "-s", "KILL", "kafka", "controller")
    kafka_alone.docker("start", kafka_alone.containers("kafka")[0].id)

    wait_until(
        lambda: "still waiting for a controller at 100@controller:29093" in _said(kafka_alone),
        60,
        "what the broker says",
    )


def test_ports_of_this_machine_and_the_user_of_the_services_are_variables(built: Deployment) -> None:
    configure(built.folder, {})
    ports = {"KAFKA_PORT": "19292", "COMBEE_GATEWAY_PORT": "18750", "COMBEE_USER": "1000"}
    with (built.folder / ".env").open("a") as file:
        file.write("".join(f"{name}={value}\n" for name, value in ports.items()))
    project = Deployment(folder=built.folder, env=built.env, files=FILES)
    try:
        project.compose("up", "-d", "--no-build")
        project.wait_healthy()
        published = project.docker("ps", "--format", "{{.Ports}}")
        assert "127.0.0.1:19292->9092" in published
        assert "127.0.0.1:18750->8750" in published
        assert project.compose("exec", "-T", "scan", "id", "-u").strip() == "1000"
        # By the address that Kafka itself gives to clients on this machine.
        check = ["-m", "combee.cli", "topics", "check", "--bootstrap-servers", "localhost:19292"]
        done = subprocess.run(
            [sys.executable, *check], env=project.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    finally:
        project.compose("down", "-v", "-t", "5", check=False)
