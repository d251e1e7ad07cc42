"""Whose files are believed, and where secrets of the environment go."""

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

from combee.adapters.ports import ConfigurationError
from combee.assembly.local.deployment import deployment
from combee.assembly.local.stack_file import data_dir, stack_file, stack_is_running
from combee.process import trusted_files
from combee.process.settings.group import SettingsError
from combee.process.settings.loading import load_settings
from combee.process.trusted_files import distrust, read_trusted
from support.rows import each_row

ME, OTHER, MINE, SHARED = 1000, 1001, 1000, 100
KEY = "sk-of-the-environment"


def status(mode: int, user: int, owning_group: int) -> os.stat_result:
    return os.stat_result((stat.S_IFREG | mode, 0, 0, 1, user, owning_group, 0, 0, 0, 0))


@each_row(
    ("mode", "user", "owning_group", "says"),
    [
        (0o644, ME, MINE, ""),
        (0o664, ME, MINE, ""),
        (0o644, 0, 0, ""),
        (0o666, ME, MINE, "by everybody: 'chmod o-w"),
        (0o646, 0, 0, "by everybody: 'chmod o-w"),
        (0o664, ME, SHARED, "group 100, which is not yours alone: 'chmod g-w"),
        (0o664, ME, 0, "group 0, which is not yours alone"),
        (0o600, OTHER, MINE, "belongs to user 1001"),
    ],
)
def test_a_file_is_believed_if_nobody_else_can_have_written_it(
    mode: int, user: int, owning_group: int, says: str
) -> None:
    found = distrust(status(mode, user, owning_group), user=ME, own_group=MINE)
    assert (says in found) if says else (found == "")


def test_one_judgement_holds_for_settings_keys_stack_file_and_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings_file = tmp_path / "combee.toml"
    settings_file.write_text("batch_size = 7\n")
    home = tmp_path / "data"
    home.mkdir()
    settings = load_settings(data_dir=home)
    assert settings.batch.batch_size == 7
    marker = stack_file(settings)
    marker.write_text(json.dumps({"pid": os.getpid()}))
    marker.chmod(0o666)
    for look in (stack_is_running, deployment):
        with pytest.raises(ConfigurationError, match=r"stack-combee\.json can be written by everybody"):
            look(settings)
    home.chmod(0o777)
    with pytest.raises(ConfigurationError, match="data can be written by everybody"):
        data_dir(settings)
    settings_file.chmod(0o666)
    with pytest.raises(
        SettingsError, match=r"combee\.toml can be written by everybody: 'chmod o-w combee\.toml'"
    ):
        load_settings()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_settings_file_of_somebody_else_is_refused_and_so_is_their_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "combee.toml"
    path.write_text("batch_size = 7\n")
    os.chown(path, OTHER, OTHER)
    with pytest.raises(SettingsError, match="belongs to user 1001, not to you"):
        load_settings()
    path.rename(tmp_path / "other.toml")
    os.chown(tmp_path / "other.toml", 0, 0)
    path.symlink_to("other.toml")
    assert load_settings().batch.batch_size == 7
    os.chown(path, OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(SettingsError, match="a link that somebody else made"):
        load_settings()


def test_a_file_is_judged_by_what_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    judged: list[int] = []

    def see(found: os.stat_result, **_: object) -> str:
        judged.append(found.st_ino)
        return ""

    monkeypatch.setattr(trusted_files, "distrust", see)
    assert read_trusted(path) == "x"
    assert judged == [path.stat().st_ino]


MODEL = 'base_url = "http://192.0.2.1/v1"\n'
BROKER = 'bootstrap_servers = "192.0.2.1:9092"\nsecurity_protocol = "SASL_PLAINTEXT"\n'


def lay_about(
    text: str, environment: Mapping[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work in a folder where such a configuration file lies, in this environment."""
    monkeypatch.chdir(folder)
    (folder / "combee.toml").write_text(text)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("text", "environment", "flags"),
    [
        (MODEL, {"OPENAI_API_KEY": KEY}, {}),
        (MODEL, {"COMBEE_API_KEY": KEY}, {}),
        (MODEL + f'api_key = "{"o" * 20}"\n', {"OPENAI_API_KEY": KEY}, {}),
        (MODEL.upper().replace("HTTP", "http"), {"OPENAI_API_KEY": KEY}, {"model": "openai/x"}),
        ('OPENAI_BASE_URL = "http://192.0.2.1/v1"\n', {"OPENAI_API_KEY": KEY}, {}),
        (BROKER, {"COMBEE_SASL_PASSWORD": KEY}, {}),
        ('azure_endpoint = "http://192.0.2.1"\n', {"AZURE_OPENAI_API_KEY": KEY}, {}),
        ('azure_endpoint = "http://192.0.2.1"\n', {}, {}),
        ('eval_base_url = "http://192.0.2.1/v1"\n', {"COMBEE_EVAL_API_KEY": KEY}, {}),
        (MODEL, {"OPENAI_CUSTOM_HEADERS": f"Authorization: Bearer {KEY}"}, {}),
        (f"embedding_{MODEL}", {"OPENAI_CUSTOM_HEADERS": f"X-Key: {KEY}"}, {}),
    ],
)
def test_secrets_of_the_environment_never_go_where_a_file_lying_about_says(
    text: str,
    environment: Mapping[str, str],
    flags: Mapping[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lay_about(text, environment, tmp_path, monkeypatch)
    with pytest.raises(SettingsError, match=r"COMBEE_CONFIG=combee\.toml") as refused:
        load_settings(**flags)
    assert KEY not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "environment", "flags"),
    [
        (MODEL, {}, {}),
        (MODEL, {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, {}),
        (MODEL, {"OPENAI_API_KEY": KEY}, {"base_url": "http://127.0.0.1:1/v1"}),
        (MODEL, {"OPENAI_API_KEY": KEY, "COMBEE_CONFIG": "combee.toml"}, {}),
        ('model = "gpt"\n', {"OPENAI_API_KEY": KEY}, {}),
        (BROKER, {"OPENAI_API_KEY": KEY}, {}),
        (BROKER, {"COMBEE_SASL_PASSWORD": KEY, "COMBEE_BOOTSTRAP_SERVERS": "127.0.0.1:1"}, {}),
    ],
)
def test_secrets_go_to_addresses_of_the_environment_a_flag_or_a_file_that_was_named(
    text: str,
    environment: Mapping[str, str],
    flags: Mapping[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lay_about(text, environment, tmp_path, monkeypatch)
    load_settings(**flags)


def test_a_named_settings_file_is_read_instead_and_must_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "combee.toml").write_text("batch_size = 7\n")
    (tmp_path / "mine.toml").write_text("batch_size = 9\n")
    monkeypatch.setenv("COMBEE_CONFIG", str(tmp_path / "mine.toml"))
    assert load_settings().batch.batch_size == 9
    monkeypatch.setenv("COMBEE_CONFIG", "none.toml")
    with pytest.raises(SettingsError, match=r"COMBEE_CONFIG: there is no none\.toml"):
        load_settings()


def test_code_is_never_run_that_a_file_lying_about_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_about('eval_function = "their.module:f"\n', {}, tmp_path, monkeypatch)
    with pytest.raises(SettingsError, match=r"code that it names must not run.*COMBEE_CONFIG=combee\.toml"):
        load_settings()
    assert load_settings(eval_function="my.module:f").evaluation.eval_function == "my.module:f"
    monkeypatch.setenv("COMBEE_EVAL_FUNCTION", "own.module:f")
    assert load_settings().evaluation.eval_function == "own.module:f"
    monkeypatch.delenv("COMBEE_EVAL_FUNCTION")
    monkeypatch.setenv("COMBEE_CONFIG", "combee.toml")
    assert load_settings().evaluation.eval_function == "their.module:f"


@each_row(
    ("text", "reason"),
    [
        ('gateway_host = "0.0.0.0"\ngateway_keys = "[]"\n', "keys that it names must not open the gateway"),
        ('gateway_keys_file = "keys.toml"\n', "keys that it names must not open the gateway"),
        ('gateway_cors_origins = "https://a.example"\n', "pages of an origin that it names"),
        ('eval_endpoint = "https://a.example"\n', "playbooks must not be sent"),
    ],
)
def test_a_file_lying_about_opens_nothing_to_its_author(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        lay_about(text, {}, tmp_path, monkeypatch)
        with pytest.raises(SettingsError, match=reason):
            load_settings()
        monkeypatch.setenv("COMBEE_CONFIG", "combee.toml")
        load_settings()
