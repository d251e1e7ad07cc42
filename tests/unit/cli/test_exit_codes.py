"""0 good, 1 failed, 2 usage or settings: on every verb, with one line and no traceback."""

import re
import ssl
import sys
from collections.abc import Iterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiokafka.errors
import pytest
from typer.main import get_command

from combee import cli
from combee.adapters.extras import pip_install
from combee.adapters.kafka.errors import translated
from combee.adapters.ports import CombeeError, ConfigurationError, FatalError, TransientError
from combee.assembly.local import extras
from combee.assembly.local import log as local_log
from combee.cli.__main__ import app
from combee.cli.shared.console import USAGE, remark
from combee.cli.verbs import PANELS, VERBS, OnDemand
from combee_schemas.topics import REFLECTIONS, TOPICS
from support.reading import run, run_json
from support.rows import each_row


@pytest.fixture
def no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Point at a port of loopback where nobody listens."""
    monkeypatch.setenv("COMBEE_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setattr(local_log, "CONNECT_S", 0.0)


READING = [
    ("status",),
    ("ledger",),
    ("dlq", "list"),
    ("dlq", "show", "0-0"),
    ("playbook", "list"),
    ("playbook", "show", "x"),
    ("playbook", "export", "x"),
    ("playbook", "watch", "x"),
    ("playbook", "import", "x", "-"),
    ("playbook", "diff", "x"),
    ("playbook", "promote", "x", "production"),
    ("review", "x"),
    ("playbook", "labels"),
    ("playbook", "edit", "x"),
    ("playbook", "keep", "x", "x-1"),
    ("playbook", "rollback", "x", "1"),
    ("playbook", "revoke", "x", "r-1"),
    ("playbook", "delete", "x", "--yes"),
    ("sync", "x", "--to", "x.md"),
    ("why", "x-1"),
    ("playbook", "cost"),
    ("publish", "-"),
    ("replay", "x", "--to", "other"),
    ("archive", "x", "--to", "x.archive"),
    ("archive", "--prefix", "--to", "x.archive"),
    ("restore", "x.archive"),
    ("top", "--once"),
    ("topics", "check"),
    ("topics", "create"),
]


@pytest.mark.usefixtures("no_broker")
@each_row("arguments", READING, ids=" ".join)
def test_without_a_broker_every_verb_exits_1_with_the_remedy(arguments: tuple[str, ...]) -> None:
    result = run(*arguments, stdin="## A\n[x] one\n")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no Kafka answers at 127.0.0.1:1" in result.stderr
    assert "COMBEE_BOOTSTRAP_SERVERS" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.usefixtures("no_broker")
@each_row(
    "arguments",
    [
        ("nope",),
        ("playbook", "show"),
        ("playbook", "show", "bad name"),
        ("playbook", "show", "x", "--version", "0"),
        ("playbook", "show", "x", "--format", "xml"),
        ("playbook", "show", "x", "--history", "--version", "2"),
        ("playbook", "convert", "x"),
        ("playbook", "convert", "x", "--to", "auto"),
        ("playbook", "convert", "x", "--to", "ace", "--from", "xml"),
        ("playbook", "convert", "x", "--to", "ace", "--name", "bad name"),
        ("playbook", "import", "x", "f", "--format", "xml"),
        ("playbook", "watch", "x", "--count", "0"),
        ("playbook", "promote", "x", "latest"),
        ("playbook", "show", "x", "--version", "1", "--label", "production"),
        ("playbook", "export", "x", "--version", "1", "--label", "production"),
        ("playbook", "rollback", "x"),
        ("playbook", "revoke", "x"),
        ("why",),
        ("playbook", "cost", "bad name"),
        ("replay", "x"),
        ("replay", "x", "--to", "bad prefix"),
        ("top", "--interval", "0"),
        ("topics", "acls", "--format", "strimzi", "--principal", "agents=User:CN=support,OU=agents"),
        ("dlq", "show", "seven"),
        ("dlq", "list", "--limit", "0"),
        ("dlq", "retry"),
        ("dlq", "retry", "0-0", "--all"),
        ("dlq", "retry", "0-0", "--service", "scan"),
        ("dlq", "retry", "seven"),
        ("dlq", "drop"),
        ("dlq", "drop", "0-x"),
        ("dlq", "show", "1-²"),
        ("sim", "serve", "--knows", "absent.jsonl"),
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_2(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize("arguments", [("status",), ("topics", "show"), ("ledger",)], ids=" ".join)
def test_a_wrong_setting_exits_2_and_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COMBEE_PARTITIONS", "none")
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "COMBEE_PARTITIONS" in result.stderr


def test_a_broken_settings_file_exits_2(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "combee.toml").write_text("partitions = = 3", "utf-8")
    monkeypatch.chdir(tmp_path)
    result = run("topics", "show")
    assert result.exit_code == 2
    assert "combee.toml" in result.stderr


def test_a_cluster_that_refuses_a_verb_exits_2(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def refused(*_: Any, **__: Any) -> Any:
        raise ConfigurationError("wrong password")
        yield

    monkeypatch.setattr(local_log, "open_log", refused)
    result = run("status")
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", "combee: wrong password\n")


@pytest.mark.parametrize("name", ["list", "overload"])
def test_where_only_the_product_is_installed_the_experiments_name_their_checkout_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, "combee_experiments", None)
    result = run("experiment", name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.fullmatch(
        r"combee: the experiments are not part of .*'make setup' in a checkout.*\n", result.stderr
    )


@each_row(
    "arguments",
    [
        ("sim", "serve", "--law", "none"),
        ("sim", "serve", "--mode", "lies"),
        ("experiment", "overload", "--law", "none"),
        ("experiment", "overload", "--mode", "paraphrase=2"),
        ("experiment", "overload", "--model", "openai/some-model", "--mode", "paraphrase"),
    ],
)
def test_a_stand_in_that_cannot_be_made_like_that_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


@pytest.mark.parametrize("error", [FatalError("act"), TransientError("wait"), TimeoutError()], ids=repr)
def test_errors_on_purpose_exit_1_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    @asynccontextmanager
    async def failing(*_: Any, **__: Any) -> Any:
        raise error
        yield

    monkeypatch.setattr(local_log, "open_log", failing)
    result = run("status")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("combee: ")
    assert "Traceback" not in result.stderr


async def test_a_verb_says_what_it_waits_for_and_goes_on_when_the_broker_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(local_log, "ASK_AGAIN_S", 0.001)
    refusals = [TransientError("connection refused")] * 3

    async def ask() -> None:
        if refusals:
            raise refusals.pop()

    await local_log._answered(ask, "kafka:9092", remark)
    assert refusals == []
    assert capsys.readouterr().err == "waiting up to 20 s for Kafka at kafka:9092 (connection refused)\n"


async def test_a_verb_waits_for_the_broker_no_longer_than_its_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_log, "ASK_AGAIN_S", 0.001)
    monkeypatch.setattr(local_log, "CONNECT_S", 0.05)

    async def ask() -> None:
        raise TransientError("connection refused")

    with pytest.raises(FatalError, match=r"no Kafka answers at kafka:9092 \(connection refused\): start it"):
        await local_log._answered(ask, "kafka:9092", remark)


def unknown_issuer() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError("unknown issuer")
    error.verify_code, error.verify_message = 20, "unable to get local issuer certificate"
    return error


@each_row(
    ("error", "kind"),
    [
        (aiokafka.errors.SaslAuthenticationFailed("wrong password"), ConfigurationError),
        (aiokafka.errors.UnsupportedSaslMechanismError(), ConfigurationError),
        (aiokafka.errors.TopicAuthorizationFailedError("t"), ConfigurationError),
        (aiokafka.errors.GroupAuthorizationFailedError("g"), ConfigurationError),
        (aiokafka.errors.ClusterAuthorizationFailedError(), ConfigurationError),
        (aiokafka.errors.TransactionalIdAuthorizationFailed(), ConfigurationError),
        (unknown_issuer(), ConfigurationError),
        (ssl.SSLError("wrong version number"), ConfigurationError),
        (ssl.SSLEOFError("in the middle of a handshake"), TransientError),
        (ConnectionRefusedError(), TransientError),
        (ConnectionResetError(), TransientError),
        (TimeoutError(), TransientError),
        (aiokafka.errors.KafkaConnectionError("closed"), TransientError),
        (aiokafka.errors.NodeNotReadyError(), TransientError),
        (aiokafka.errors.GroupCoordinatorNotAvailableError(), TransientError),
    ],
    ids=repr,
)
def test_what_waiting_heals_is_waited_for_and_what_it_does_not_heal_is_not(
    error: Exception, kind: type[CombeeError]
) -> None:
    with pytest.raises(CombeeError) as found, translated("asking"):
        raise error
    assert type(found.value) is kind


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def test_every_verb_has_help_with_an_example() -> None:
    found = dict(commands(get_command(app)))
    assert len(found) > 10
    missing = [
        " ".join(path)
        for path, one in found.items()
        if not (one.help and "Example: combee" in (one.epilog or ""))
    ]
    assert missing == []


def test_the_list_of_verbs_says_of_each_what_its_own_help_begins_with() -> None:
    for name, verb in VERBS.items():
        assert OnDemand()[name].help.split("\n\n")[0].replace("\n", " ").strip() == verb.summary


def test_the_help_is_four_panels_and_fits_one_screen() -> None:
    shown = run("--help").stdout.splitlines()

    assert len(shown) <= 24
    assert max(map(len, shown)) <= 80
    labels = [line.split(" ")[0] for line in shown if not line.startswith(" ")]
    assert labels == ["Usage:", "Use", "Judge", "Operate", "Lab", "Services"]
    assert {"sync", "mcp"} <= PANELS["Use"].keys()
    assert shown[-1].startswith("Services worker, broker, topics, tenant, key:")


@pytest.mark.usefixtures("no_broker")
@each_row(
    ("old", "new"),
    [
        (("adopt", "x@b"), ("branch", "adopt", "x@b")),
        (("cost",), ("playbook", "cost")),
        (("controller", "x"), ("playbook", "controller", "x")),
        (("bisect", "x", "--good", "latest"), ("playbook", "bisect", "x", "--good", "latest")),
    ],
)
def test_an_old_spelling_runs_and_names_the_new_one(old: tuple[str, ...], new: tuple[str, ...]) -> None:
    before, now = run(*old), run(*new)

    verb = " ".join(new[:2])
    assert before.stderr == f"'combee {old[0]}' is now 'combee {verb}'\n{now.stderr}"
    assert (before.exit_code, before.stdout) == (now.exit_code, now.stdout)
    assert run(old[0], "--help").stdout == run(*new[:2], "--help").stdout


def test_a_verb_stands_under_its_name_and_nothing_but_verbs_stands_beside_it() -> None:
    plumbing = {"__init__", "__main__", "verbs", "shared"}
    folder = Path(cli.__file__).parent
    there = {
        path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    assert there - plumbing == set(VERBS)
    assert all(verb.module.split(".")[2] == name for name, verb in VERBS.items())


def test_mcp_without_its_extra_or_without_a_gateway_for_http_says_what_helps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    result = run("mcp", "--gateway", "http://127.0.0.1:1")
    assert (result.exit_code, result.stdout) == (USAGE, "")
    assert f"mcp is not installed: {pip_install('mcp')}" in result.stderr
    result = run("mcp", "--http", "--bootstrap-servers", "127.0.0.1:1")
    assert (result.exit_code, result.stdout) == (USAGE, "")
    assert "each caller brings a key of the gateway" in result.stderr


def test_the_map_of_topics_needs_no_broker() -> None:
    shown = run_json("topics", "show")
    assert [row["name"] for row in shown["topics"]] == [topic.name for topic in TOPICS]
    assert shown["topics"][1] == {
        "name": "reflections",
        "key": "playbook",
        "message": "reflection",
        "partitions": 4,
        "cleanup": "delete",
        "retention_ms": 30 * 24 * 3600 * 1000,
        "written_by": list(REFLECTIONS.written_by),
        "read_by": list(REFLECTIONS.read_by),
    }
    people = run("topics", "show").stdout
    assert "newest per key" in people
    assert "for ever" in people


def test_the_version_is_told_without_a_verb() -> None:
    ended = run("--version")
    assert (ended.exit_code, ended.stdout) == (0, f"combee {version('combee')}\n")


def test_without_an_extra_the_command_line_exits_as_with_wrong_usage() -> None:
    end = extras.end(ModuleNotFoundError("No module named 'rich'", name="rich"))
    assert isinstance(end, SystemExit)
    assert end.code == USAGE == 2
