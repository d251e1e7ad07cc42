"""What a shell offers after TAB."""

import pytest
from typer.testing import CliRunner

from combee.assembly import backends
from combee.assembly.local import log as local_log
from combee.cli.__main__ import app
from combee.cli.shared import options
from combee_schemas import topics
from support.ledger import NAME
from support.reading import learned_from, publish_with, run_json

pytestmark = pytest.mark.usefixtures("quick_polls")


def offered(line: str) -> list[str]:
    """Return what bash would offer at the end of a line."""
    words = line.split(" ")
    env = {"_COMBEE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    result = CliRunner().invoke(app, [], env=env, prog_name="combee")
    assert result.exit_code == 0, result.output
    return result.stdout.split()


@pytest.fixture
def learned(quick_polls: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001 - order
    publish_with(monkeypatch, learned_from(monkeypatch))
    monkeypatch.setenv("COMBEE_BOOTSTRAP_SERVERS", "memory")


def test_verbs_are_offered() -> None:
    assert {"why", "worker"} <= set(offered("combee w"))
    assert "promote" in offered("combee playbook p")
    assert {"bisect", "controller", "cost"} <= set(offered("combee playbook "))
    assert offered("combee branch a") == ["adopt"]


@pytest.mark.usefixtures("learned")
def test_an_old_spelling_is_not_offered_and_still_completed() -> None:
    assert {"adopt", "bisect", "controller", "cost"}.isdisjoint(offered("combee "))
    assert offered("combee cost s") == [NAME]


def test_roles_are_offered() -> None:
    assert offered("combee worker g") == ["gateway"]


@pytest.mark.usefixtures("learned")
def test_names_of_playbooks_are_offered() -> None:
    assert offered("combee playbook show ") == [NAME]
    assert offered("combee playbook show sup") == [NAME]
    assert offered("combee playbook show x") == []
    assert offered("combee playbook cost s") == [NAME]
    assert offered("combee why calc-1 --playbook ") == [NAME]


@pytest.mark.usefixtures("learned")
def test_no_playbook_is_decoded_for_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a name is a key")

    monkeypatch.setattr(topics, "decode", never)
    assert offered("combee playbook show ") == [NAME]


def test_neither_brokers_nor_topics_are_checked_for_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("that takes longer than reading a few names")

    async def known_names(_: object) -> list[str]:
        return [NAME]

    monkeypatch.setenv("COMBEE_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setattr(local_log, "open_broker", never)
    monkeypatch.setattr(backends, "check_topics", never)
    monkeypatch.setattr(options, "names", known_names)
    assert offered("combee playbook show ") == [NAME]


@pytest.mark.usefixtures("learned")
def test_branches_are_offered_where_a_branch_may_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    line = f"{NAME}@exp"
    deployment = learned_from(monkeypatch)
    publish_with(monkeypatch, deployment, "shuffle", "publish")
    run_json("branch", NAME, "--as", "exp")
    for verb in ("playbook show", "playbook cost", "evaluate"):
        assert offered(f"combee {verb} ") == [NAME, line], verb
    for verb in ("archive", "replay"):
        assert offered(f"combee {verb} ") == [NAME], verb
    assert offered("combee branch ") == ["adopt", NAME]
    assert offered("combee branch adopt ") == [line]
    assert offered(f"combee playbook diff {NAME} s") == [line]


@pytest.mark.usefixtures("learned")
def test_versions_and_labels_of_that_playbook_are_offered() -> None:
    run_json("playbook", "promote", NAME, "production", "1")
    assert offered(f"combee playbook rollback {NAME} ") == ["latest", "production", "2", "1"]
    assert offered(f"combee playbook diff {NAME} p") == ["production"]
    assert offered(f"combee playbook promote {NAME} pro") == ["production"]
    assert offered(f"combee playbook show {NAME} --label ") == ["production"]


def test_without_a_running_broker_nothing_is_started_and_nothing_is_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("a TAB must not start a broker")

    monkeypatch.setattr(local_log, "open_broker", never)
    assert offered("combee playbook show ") == []


def test_a_broker_that_is_away_is_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMBEE_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    assert offered("combee playbook show ") == []
