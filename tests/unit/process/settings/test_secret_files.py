"""Secrets in files: every secret of the settings, the SDK's too; nothing of them is shown."""

from pathlib import Path

import pytest

from combee.adapters.ports import ConfigurationError
from combee.assembly.local.stack import StackOptions, child_environment
from combee.cli.doctor.examine import settings_checks
from combee.process.settings.group import SettingsError
from combee.process.settings.loading import load_settings, secrets
from combee.sdk.address import resolved_address

WORD = "word-of-passage"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(f"{WORD}\n")
    return path


@pytest.mark.parametrize("name", secrets())
def test_every_secret_may_stand_in_a_file(name: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"COMBEE_{name.upper()}_FILE", str(file))
    settings = load_settings()
    assert [secret.get_secret_value() for secret in settings.secrets()] == [WORD]
    assert WORD not in repr(settings)


def test_the_salt_may_stand_in_a_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMBEE_SALT_FILE", str(file))
    settings = load_settings()
    assert settings.batch.salt == WORD
    # A service is given what was read, and not its file next to it, which would be refused.
    env = child_environment(
        StackOptions(settings=settings, bootstrap_servers="kafka:9092", folder=file.parent)
    )
    assert env["COMBEE_SALT"] == WORD
    assert "COMBEE_SALT_FILE" not in env
    assert [check.verdict for check in settings_checks()] == ["ok"], "doctor knows the variable"


def test_a_file_wins_over_another_tool_s_variable(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMBEE_API_KEY_FILE", str(file))
    monkeypatch.setenv("OPENAI_API_KEY", "of-another-tool")
    key = load_settings().model.api_key
    assert key is not None
    assert key.get_secret_value() == WORD


def test_a_secret_that_is_given_twice_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMBEE_SASL_PASSWORD_FILE", str(file))
    monkeypatch.setenv("COMBEE_SASL_PASSWORD", "another")
    with pytest.raises(
        SettingsError, match="COMBEE_SASL_PASSWORD and COMBEE_SASL_PASSWORD_FILE are both set"
    ):
        load_settings()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read"),
        (b"", "holds no secret"),
        (b"\n", "holds no secret"),
        (b"\xff\xfe", "it is not text"),
    ],
)
def test_a_file_without_a_secret_is_named(
    content: bytes | None, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("COMBEE_OAUTH_CLIENT_SECRET_FILE", str(path))
    with pytest.raises(SettingsError, match=f"COMBEE_OAUTH_CLIENT_SECRET_FILE: .*{sentence}"):
        load_settings()


def test_a_device_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMBEE_SASL_PASSWORD_FILE", "/dev/zero")
    with pytest.raises(SettingsError, match="more than a secret"):
        load_settings()


def test_a_file_is_named_by_the_environment_alone(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a combee.toml that lies about could send any file of this user anywhere."""
    (tmp_path / "combee.toml").write_text(f'sasl_password_file = "{file}"\n')
    monkeypatch.chdir(tmp_path)
    assert load_settings().secrets() == []


def test_a_secret_of_a_file_is_not_sent_where_a_file_that_lies_about_says(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "combee.toml").write_text('bootstrap_servers = "192.0.2.1:9092"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMBEE_SASL_PASSWORD_FILE", str(file))
    with pytest.raises(SettingsError, match="set COMBEE_BOOTSTRAP_SERVERS"):
        load_settings()


def test_agents_have_their_secrets_in_files_too(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMBEE_SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("COMBEE_SASL_USERNAME", "agent")
    monkeypatch.setenv("COMBEE_SASL_PASSWORD_FILE", str(file))
    monkeypatch.setenv("COMBEE_GATEWAY_KEY_FILE", str(file))
    kafka = resolved_address("kafka:9092", prefix=None, api_key=None, security=None)
    assert kafka.security["sasl_plain_password"] == WORD
    assert resolved_address("http://gateway", prefix=None, api_key=None, security=None).api_key == WORD
    monkeypatch.setenv("COMBEE_SASL_PASSWORD", "another")
    with pytest.raises(ConfigurationError, match="are both set"):
        resolved_address("kafka:9092", prefix=None, api_key=None, security=None)
