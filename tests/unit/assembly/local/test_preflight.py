"""What a newcomer gets wrong is refused before anything starts: one line, the remedy, exit code 2."""

import asyncio
import os
import re
import socket
import tomllib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from combee.adapters.ports import ConfigurationError
from combee.assembly.local import log as local_log
from combee.assembly.local.deployment import Deployment, beside, deployment
from combee.assembly.local.extras import EXTRAS
from combee.assembly.local.stack_file import sole_stack, stack_file
from combee.cli.doctor.examine import settings_checks
from combee.cli.learn.run import SERVICES
from combee.cli.shared.console import remark
from combee.core.log.diagnosis.flow import waited_for
from combee.process.running import UP
from combee.process.settings.group import NAMED_BY
from combee.process.settings.loading import Settings, load_settings
from support.reading import run

ROOT = Path(__file__).parents[4]
RUNS = str(ROOT / "examples" / "runs.jsonl")
NOBODY = "http://127.0.0.1:1/v1"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Return what was started: nothing may be."""
    monkeypatch.setenv("COMBEE_DATA_DIR", str(tmp_path / "data"))
    found: list[str] = []

    def open_log(*_: Any, **__: Any) -> Any:
        found.append("broker")
        raise AssertionError("a broker was to be started")

    monkeypatch.setattr(local_log, "open_log", open_log)
    return found


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def refused(*arguments: str) -> str:
    ended = run(*arguments)
    assert (ended.exit_code, ended.stdout) == (2, ""), ended.output
    assert ended.stderr.startswith("combee: ")
    assert ended.stderr.count("\n") == 1
    return ended.stderr


# ---- before anything starts


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("up",), "--simulated"),
        (("up", "--model", "gpt-x"), "OPENAI_API_KEY"),
        (("up", "--model", "m", "--base-url", "nowhere"), "OPENAI_BASE_URL"),
        (("up", "--model", "m", "--base-url", NOBODY), "--base-url"),
        (("up", "--simulated", "--model", "gpt-x"), "gpt-x"),
        (("learn", RUNS), "--simulated"),
        (("learn", RUNS, "--model", "gpt-x"), "OPENAI_API_KEY"),
        (("learn", RUNS, "--model", "m", "--base-url", NOBODY), "--base-url"),
        (("learn", RUNS, "--simulated", "--base-url", NOBODY), "--base-url"),
        (("replay", "x", "--to", "y", "--ask", "--model", "gpt-x"), "OPENAI_API_KEY"),
        (("experiment", "overload", "--model", "gpt-x"), "OPENAI_API_KEY"),
        (("worker", "reflect", "--bootstrap-servers", "127.0.0.1:1"), "COMBEE_MODEL"),
    ],
    ids=" ".join,
)
def test_a_model_that_cannot_be_asked_is_refused_before_anything_starts(
    started: list[str], monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], remedy: str
) -> None:
    monkeypatch.setenv("COMBEE_GATEWAY_PORT", "0")
    assert remedy in refused(*arguments)
    assert started == []


def test_a_taken_port_is_refused_with_who_has_it_and_never_exchanged_for_another(
    started: list[str], monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    assert load_settings().gateway.gateway_port == 8750
    monkeypatch.setenv("COMBEE_GATEWAY_PORT", str(taken))
    told = refused("up", "--simulated")
    assert f"127.0.0.1:{taken} cannot be used" in told
    assert f"process {os.getpid()}" in told
    assert "COMBEE_GATEWAY_PORT (0: a free one)" in told
    assert started == []


@pytest.mark.parametrize("arguments", [("up", "--simulated"), ("learn", RUNS, "--simulated"), ("status",)])
def test_a_data_directory_that_cannot_be_written_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("COMBEE_GATEWAY_PORT", "0")
    monkeypatch.setenv("COMBEE_DATA_DIR", str(tmp_path / "file" / "data"))
    assert "COMBEE_DATA_DIR" in refused(*arguments)


# ---- services that somebody else starts: combee worker --check


@pytest.mark.parametrize(
    ("roles", "given", "said"),
    [
        (("reflect",), {}, "no model is configured"),
        (("scan",), {"COMBEE_MODEL": "gpt-x"}, "OPENAI_API_KEY"),
        (("reflect",), {"COMBEE_MODEL": "m", "COMBEE_BASE_URL": NOBODY}, "no answer from 127.0.0.1:1"),
        (("shuffle",), {"COMBEE_EMBEDDING_MODEL": "openai/text-embedding-3-small"}, "OPENAI_API_KEY"),
        (("shuffle",), {"COMBEE_SOURCES_FILE": "missing.toml"}, "missing.toml cannot be read"),
        (("control", "gateway"), {"COMBEE_GATEWAY_KEYS_FILE": "missing.toml"}, "missing.toml cannot be read"),
        (("publish", "gateway"), {"COMBEE_GATEWAY_HOST": "0.0.0.0"}, "COMBEE_GATEWAY_KEYS_FILE"),  # noqa: S104
        (("evaluate", "publish"), {}, "COMBEE_GATE names no judge"),
        (("evaluate", "publish"), {"COMBEE_GATE": "evaluate", "COMBEE_MODEL": "m"}, "no held-out questions"),
        (("publish",), {"COMBEE_PLAYBOOK_TOKENS": "1"}, "COMBEE_PLAYBOOK_TOKENS"),
    ],
)
def test_a_check_says_why_a_service_could_not_start(
    monkeypatch: pytest.MonkeyPatch, roles: tuple[str, ...], given: dict[str, str], said: str
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    ended = run("worker", "--check", *roles)

    assert ended.exit_code in {1, 2}
    assert ended.stdout == ""
    assert ended.stderr.startswith("combee: ")
    assert said in ended.stderr


def test_a_check_passes_where_every_service_could_start_and_starts_none(
    started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "GATE": "evaluate",
        "EVAL_QUESTIONS": str(ROOT / "examples" / "heldout.jsonl"),
        "MODEL": "m",
        "BASE_URL": NOBODY,
    }.items():
        monkeypatch.setenv(f"COMBEE_{name}", value)
    ended = run("worker", "--check", "publish", "shuffle", "control", "gateway", "evaluate")

    assert (ended.exit_code, ended.output) == (0, "")
    assert started == []


def test_only_a_check_takes_several_services() -> None:
    assert "a worker is one service" in run("worker", "scan", "publish").stderr
    assert "no such role: skan" in run("worker", "--check", "scan", "skan").stderr


# ---- extras


def test_every_extra_that_is_named_brings_what_it_is_named_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    project["cli"] += project["services"]
    for extra, modules in EXTRAS.items():
        brought = {re.split(r"[<>=\[]", one)[0] for one in project[extra]}
        named = {{"faust": "faust-streaming"}.get(one, one.replace("_", "-")) for one in modules}
        assert named <= brought, extra


# ---- the model of the deployment that runs


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    monkeypatch.setenv("COMBEE_DATA_DIR", str(tmp_path))
    return load_settings()


@asynccontextmanager
async def announced(settings: Settings, found: Deployment, folder: Path) -> AsyncIterator[None]:
    """Be a deployment that runs, as far as the verbs are told."""
    async with sole_stack(settings, UP, folder, tell=remark) as tell_verbs:
        tell_verbs(asdict(found))
        yield


BATCH = {"method": "ace", "batch_size": 40, "copies": 2}
SIMULATED = Deployment(
    bootstrap_servers="127.0.0.1:1", model="simulated", base_url="http://127.0.0.1:2/v1", batch=BATCH
)
REAL = Deployment(bootstrap_servers="127.0.0.1:1", model="openai/gpt-x", batch=BATCH)


def test_verbs_use_the_model_of_the_running_deployment_whatever_is_configured(settings: Settings) -> None:
    configured = replace(
        settings,
        model=settings.model.model_copy(update={"model": "ollama/y", "api_key": SecretStr("sk-costly")}),
    )
    used = beside(SIMULATED, configured).model
    assert (used.model, used.base_url) == ("simulated", SIMULATED.base_url)
    assert used.api_key is not None
    assert used.api_key.get_secret_value() == "simulated"
    assert beside(REAL, configured).model.model == REAL.model
    assert beside(None, configured) is configured
    on_azure = replace(REAL, model="azure/small", base_url=None)
    assert beside(on_azure, configured, model="azure/small").model.model == "azure/small"


def test_a_flag_that_agrees_with_the_running_deployment_changes_nothing(settings: Settings) -> None:
    assert beside(SIMULATED, settings, model="simulated").model.base_url == SIMULATED.base_url
    assert beside(REAL, settings, model="gpt-x").model.model == REAL.model
    assert beside(REAL, settings, method="ace", batch_size=None).batch == settings.batch


@pytest.mark.parametrize(
    ("running", "flags", "other"),
    [
        (REAL, ["--simulated"], "--simulated"),
        (REAL, ["--model", "gpt-y"], "gpt-y"),
        (REAL, ["--base-url", NOBODY], NOBODY),
        (SIMULATED, ["--model", "gpt-y"], "gpt-y"),
    ],
)
async def test_a_flag_that_contradicts_the_running_deployment_is_refused_with_both_names(
    settings: Settings,
    started: list[str],
    running: Deployment,
    flags: list[str],
    other: str,
    tmp_path: Path,
) -> None:
    async with announced(load_settings(), running, tmp_path / "up"):
        told = await asyncio.to_thread(refused, "learn", RUNS, *flags)
        doctor = await asyncio.to_thread(refused, "doctor", *flags) if "--simulated" not in flags else told
    assert settings.worker.data_dir
    assert running.model in told
    assert other in told
    assert (running.model in doctor, started) == (True, [])


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--method", "gepa"], "with method ace, and --method gepa is another: leave the flag out, or stop"),
        (
            ["--batch-size", "7"],
            "with batch size 40, and --batch-size 7 is another: leave the flag out, or stop",
        ),
        (["--copies", "3"], "start it with COMBEE_COPIES=3"),
    ],
)
async def test_learn_never_passes_over_a_flag_that_the_running_deployment_does_not_follow(
    started: list[str], settings: Settings, flags: list[str], told: str, tmp_path: Path
) -> None:
    async with announced(settings, SIMULATED, tmp_path / "up"):
        assert told in await asyncio.to_thread(refused, "learn", RUNS, *flags)
    there = ("--bootstrap-servers", "127.0.0.1:3")
    if "--method" not in flags:
        assert f"leave {flags[0]} out, or add --start-workers" in refused("learn", RUNS, *flags, *there)
    assert started == []


def test_a_batch_size_is_refused_where_the_running_controller_chooses_sizes(settings: Settings) -> None:
    choosing = replace(SIMULATED, batch=BATCH | {"batch_size": None})
    with pytest.raises(ConfigurationError, match="batch size chosen by its controller") as error:
        beside(choosing, settings, batch_size=40)
    assert "start it with COMBEE_BATCH_SIZE=40" in str(error.value)
    assert beside(choosing, settings, batch_size=None).batch == settings.batch


async def test_verbs_batch_as_the_running_deployment_does(settings: Settings) -> None:
    assert beside(replace(SIMULATED, batch=BATCH | {"method": "gepa"}), settings).batch.method == "gepa"


async def test_a_running_deployment_is_found_by_its_brokers_and_forgotten_when_it_ends(
    settings: Settings, tmp_path: Path
) -> None:
    there = replace(settings, kafka=settings.kafka.model_copy(update={"bootstrap_servers": "127.0.0.1:1"}))
    elsewhere = replace(settings, kafka=settings.kafka.model_copy(update={"bootstrap_servers": "other:1"}))
    async with announced(settings, SIMULATED, tmp_path / "up"):
        assert deployment(settings) == SIMULATED
        assert deployment(there) == SIMULATED
        assert deployment(elsewhere) is None
    assert deployment(settings) is None
    async with announced(elsewhere, replace(REAL, bootstrap_servers="other:1"), tmp_path / "up"):
        assert deployment(elsewhere) is not None
        assert deployment(settings) is None


async def test_what_is_written_of_a_deployment_is_for_its_user_alone_and_errors_hide_passwords(
    settings: Settings, tmp_path: Path
) -> None:
    found = replace(REAL, base_url="http://me:word-of-passage@127.0.0.1:2/v1")
    async with announced(settings, found, tmp_path / "up"):
        state = stack_file(settings)
        assert state.stat().st_mode & 0o077 == 0
    with pytest.raises(ConfigurationError) as error:
        beside(found, settings, model="other")
    assert "word-of-passage" not in str(error.value)


def test_on_a_cluster_simulated_needs_services_of_its_own(settings: Settings, started: list[str]) -> None:
    assert settings.kafka.bootstrap_servers is None
    told = refused("learn", RUNS, "--simulated", "--bootstrap-servers", "127.0.0.1:1")
    assert "--start-workers" in told
    assert started == []


# ---- what learn says


def test_a_bad_playbook_name_is_one_line_with_the_rule_in_words_and_a_suggestion() -> None:
    told = refused("learn", RUNS, "--playbook", "bad name!", "--simulated")
    assert "letters, digits and . _ - /" in told
    assert "'bad-name'" in told
    assert "^" not in told


def test_an_empty_file_is_nothing_to_learn(started: list[str], tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    assert "nothing to learn" in refused("learn", str(tmp_path / "empty.jsonl"), "--simulated")
    (tmp_path / "bad.jsonl").write_text("{no\n")
    ended = run("learn", str(tmp_path / "bad.jsonl"), "--simulated")
    assert ended.exit_code == 3
    assert "all 1 lines" in ended.stderr
    assert started == []


LEFT = {"reflected": 3, "batched": 3, "applied": 5}
ALL = dict.fromkeys(SERVICES, 1)


def test_what_a_run_waits_for_is_a_service_without_workers_or_what_a_worker_says() -> None:
    absent = waited_for(LEFT, ALL | {"reflect": 0}, {}, "its model m")
    assert absent.startswith("waiting for 3 to be reflected: no worker of reflect is alive: start ")
    said = waited_for(LEFT, ALL, {"reflect": ["model: 503"], "scan": ["model: 503"]}, "its model m")
    assert said == "waiting for 3 to be reflected: reflect: model: 503"
    assert "reflect and its model m" in waited_for(LEFT, ALL, {}, "its model m")
    assert "shuffle are" in waited_for(LEFT | {"reflected": 0}, ALL, {}, "m")
    done = {"reflected": 0, "batched": 0, "applied": 2}
    assert "no worker of publish" in waited_for(done, ALL | {"publish": 0}, {}, "m")


# ---- settings that agents and services read


def test_every_variable_that_the_documentation_names_is_known_to_the_doctor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {
        name for page in pages for name in re.findall(r"\bCOMBEE_[A-Z_]*[A-Z]\b(?![_*])", page.read_text())
    }
    assert "COMBEE_GATEWAY_URL" in named
    for name in named - {NAMED_BY}:  # that one has to be a file
        monkeypatch.setenv(name, "x")
    assert [check.says for check in settings_checks() if check.verdict != "ok"] == []
