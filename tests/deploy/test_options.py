"""What a deployment may have beside: the judge of candidates, a file of sources, spans of agents.

On deploy/simulated.yml with the profile ``evaluate``. The model is a stand-in: a simulation.
"""

import subprocess
import sys
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from combee.assembly.compose import JUDGING
from support.compose import GATEWAY, SIMULATED, Deployment, deployment
from support.shown import ROOT
from support.waiting import wait_until

pytestmark = pytest.mark.timeout(1800)
PLAYBOOK = "support/refunds"
SOURCES = 'services_secret = "a secret that only this test knows"\n'
RUNS = 4
"""How many runs the example of a traced agent has."""
JUDGED_S = 600.0
SETTINGS = {
    "COMBEE_GATE": "evaluate",
    "COMBEE_TRUST": "team",
    "COMBEE_SOURCES_FILE": "./sources.toml",
    "COMBEE_EVAL_QUESTIONS": "./examples/heldout.jsonl",
}


@pytest.fixture(scope="module")
def running(built: Deployment) -> Iterator[Deployment]:
    sources = built.folder / "sources.toml"
    sources.write_text(SOURCES)
    sources.chmod(0o400)
    # The engine may be another user's, and only root gives files away.
    own = ("--user", "0", "-v", f"{built.folder}:/given", "--entrypoint", "chown", built.env["COMBEE_IMAGE"])
    built.docker("run", "--rm", *own, "10001", "/given/sources.toml")
    with deployment(
        built.folder, built.env, SIMULATED, settings=SETTINGS, profiles=tuple(JUDGING)
    ) as project:
        yield project


def test_spans_of_an_agent_are_learned_from_and_the_judge_lets_agents_read_it(running: Deployment) -> None:
    address = f"/v1/playbooks/{PLAYBOOK}"
    subprocess.run(
        [sys.executable, str(ROOT / "examples" / "otel_agent.py"), GATEWAY],
        env={"OTEL_EXPORTER_OTLP_HEADERS": f"Authorization=Bearer%20{running.key}"},
        check=True,
        timeout=120,
    )
    running.wait_applied(RUNS)
    wait_until(
        lambda: running.ask("GET", address).status_code == HTTPStatus.OK, JUDGED_S, "an accepted version"
    )
    ledger = running.ledger()

    assert (ledger["applied"], ledger["lost"], ledger["double"], ledger["violations"]) == (RUNS, 0, 0, [])


def test_what_came_by_the_gateways_key_is_proven(running: Deployment) -> None:
    entries = running.ask("GET", f"/v1/playbooks/{PLAYBOOK}").json()["entries"]

    assert {name for entry in entries for name in entry["sources"]} == {"key:me"}


def test_only_services_that_verify_sources_have_the_file(running: Deployment) -> None:
    look = "test -r /run/secrets/sources.toml && echo yes || echo no"
    has = {
        role: running.compose("exec", "-T", role, "sh", "-c", look).strip()
        for role in ("reflect", "shuffle", "control", "gateway", "scan", "publish", *JUDGING)
    }

    assert {role for role, answer in has.items() if answer == "yes"} == {
        "reflect",
        "shuffle",
        "control",
        "gateway",
    }
