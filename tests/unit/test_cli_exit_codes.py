"""0 good, 1 failed, 2 usage or settings: on every verb, with one line and no traceback."""

from collections.abc import Iterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from combee.cli import log as cli_log
from combee.cli.__main__ import app
from combee.ports import FatalError, TransientError
from combee_schemas.topics import REFLECTIONS, TOPICS
from support.reading import run, run_json


@pytest.fixture
def no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Point at a port of loopback where nobody listens."""
    monkeypatch.setenv("COMBEE_BOOTSTRAP_SERVERS", "127.0.0.1:1")


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
    ("playbook", "rollback", "x", "1"),
    ("playbook", "revoke", "x", "r-1"),
    ("playbook", "delete", "x", "--yes"),
    ("why", "x-1"),
    ("cost",),
    ("publish", "-"),
    ("replay", "x", "--to", "other"),
    ("top", "--once"),
    ("topics", "check"),
    ("topics", "create"),
]


@pytest.mark.usefixtures("no_broker")
@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_without_a_broker_every_verb_exits_1_with_the_remedy(arguments: tuple[str, ...]) -> None:
    result = run(*arguments, stdin="## A\n[x] one\n")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no Kafka answers at 127.0.0.1:1" in result.stderr
    assert "COMBEE_BOOTSTRAP_SERVERS" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
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
        ("playbook", "rollback", "x"),
        ("playbook", "revoke", "x"),
        ("why",),
        ("cost", "bad name"),
        ("replay", "x"),
        ("replay", "x", "--to", "bad prefix"),
        ("top", "--interval", "0"),
        ("dlq", "show", "seven"),
        ("dlq", "list", "--limit", "0"),
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


@pytest.mark.parametrize("error", [FatalError("act"), TransientError("wait"), TimeoutError()], ids=repr)
def test_errors_on_purpose_exit_1_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    @asynccontextmanager
    async def failing(*_: Any, **__: Any) -> Any:
        raise error
        yield

    monkeypatch.setattr(cli_log, "open_log", failing)
    result = run("status")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("combee: ")
    assert "Traceback" not in result.stderr


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
