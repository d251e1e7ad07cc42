"""What ``combee up`` runs, and what its processes are told."""

from pathlib import Path

import pytest

from combee.adapters.extras import pip_install
from combee.assembly import compose
from combee.assembly.local import extras
from combee.assembly.local.stack import StackOptions, child_environment, environment_of
from combee.cli import up, worker
from combee.process.settings.loading import GROUPS, in_force, load_settings
from support.reading import run
from support.rows import each_row


def test_every_role_can_be_run_alone() -> None:
    assert set(worker.ROLES) == {*compose.ROLES, *compose.JUDGING, *compose.FRONTS}
    refused = run("worker", "nope")
    assert refused.exit_code == 2
    assert "gateway" in refused.stderr


def test_the_gateway_runs_where_it_is_installed_and_wanted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _name: object())
    assert up._fronts(wanted=True) == ("gateway",)
    assert up._fronts(wanted=False) == ()
    monkeypatch.setattr(extras, "find_spec", lambda _name: None)
    assert up._fronts(wanted=True) == ()
    assert pip_install("gateway") in capsys.readouterr().err


MODEL_KEYS = {
    *("COMBEE_API_KEY", "OPENAI_API_KEY", "OPENAI_CUSTOM_HEADERS", "AZURE_CLIENT_SECRET"),
    *("COMBEE_AZURE_API_KEY", "AZURE_OPENAI_API_KEY", "COMBEE_AZURE_AD_TOKEN", "AZURE_OPENAI_AD_TOKEN"),
}
SECRETS = {
    f"COMBEE_{name.upper()}"
    for group in GROUPS.values()
    for name, field in group.model_fields.items()
    if "SecretStr" in str(field.annotation)
}


def test_processes_are_told_every_setting_and_no_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COMBEE_GATEWAY_PORT", "8123")
    monkeypatch.setattr("combee.assembly.local.stack.environment", dict)
    for secret in SECRETS:
        monkeypatch.setenv(secret, "[]")
    settings = load_settings(model="simulated", batch_size=7)
    told = child_environment(StackOptions(settings=settings, bootstrap_servers="b:1", folder=tmp_path))
    assert (told["COMBEE_GATEWAY_PORT"], told["COMBEE_BATCH_SIZE"]) == ("8123", "7")
    assert not SECRETS & told.keys()


KAFKA_S = {"COMBEE_SASL_PASSWORD", "COMBEE_SSL_KEY_PASSWORD", "COMBEE_OAUTH_CLIENT_SECRET"}


@each_row(
    ("role", "given", "expected"),
    [
        ("reflect", {}, MODEL_KEYS),
        ("scan", {}, MODEL_KEYS),
        ("scan", {"embedding_model": "openai/e"}, {*MODEL_KEYS, "COMBEE_EMBEDDING_API_KEY"}),
        ("shuffle", {}, set()),
        (
            "shuffle",
            {"embedding_model": "openai/e"},
            {*MODEL_KEYS, "COMBEE_EMBEDDING_API_KEY"},
        ),
        ("publish", {}, set()),
        ("control", {}, set()),
        ("gateway", {}, {"COMBEE_GATEWAY_KEYS"}),
        ("sim", {}, set()),
    ],
)
def test_a_process_gets_only_the_keys_that_it_uses(
    role: str, given: dict[str, str], expected: set[str]
) -> None:
    keys = {*SECRETS, *MODEL_KEYS}
    env = dict.fromkeys({*keys, *(f"{key}_FILE" for key in keys), "PATH"}, "x")
    kept = environment_of(role, env, load_settings(**given)).keys()
    everybodys = {"PATH", *KAFKA_S, *(f"{name}_FILE" for name in KAFKA_S)}
    assert kept - everybodys == expected | {f"{name}_FILE" for name in expected}
    assert everybodys <= kept
    assert not expected - keys


def test_services_know_where_up_has_each_setting_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To its services every setting is a variable, which tells a reader of the page of settings nothing."""
    monkeypatch.setenv("COMBEE_COPIES", "1")
    settings = load_settings(batch_size=7)
    told = child_environment(StackOptions(settings=settings, bootstrap_servers="b:1", folder=tmp_path))
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    shown = {setting.name: (setting.value, setting.origin) for setting in in_force(load_settings())}
    assert shown["batch_size"] == ("7", "flag")
    assert shown["copies"] == ("1", "environment: COMBEE_COPIES")
    assert shown["max_wait_s"] == ("30.0", "default")
