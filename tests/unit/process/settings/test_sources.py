"""The file of sources: what it may hold, and that no message has a secret in it."""

import base64
from pathlib import Path

import pytest

from combee.adapters.ed25519 import key_proof
from combee.adapters.ports import ConfigurationError
from combee.assembly.backends import known_sources
from combee.core.names.sources import Signer, secret_proof
from combee.process.settings.group import SettingsError
from combee.process.settings.loading import load_settings
from combee.process.settings.sources import SourceSettings
from combee_schemas.base import Source

SECRET = "a secret of the shop"  # noqa: S105 - a made-up one
PRIVATE = bytes(range(32))
PUBLIC = base64.b64encode(
    bytes.fromhex("03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8")
).decode()


def settings(folder: Path, text: str) -> SourceSettings:
    path = folder / "sources.toml"
    path.write_text(text)
    return load_settings(sources_file=path).sources


def test_a_file_names_sources_with_secrets_and_with_public_keys(tmp_path: Path) -> None:
    known = known_sources(
        settings(
            tmp_path,
            f"""services_secret = "what the services share"
[[sources]]
name = "shop"
secret = "{SECRET}"
[[sources]]
name = "lab"
public_key = "{PUBLIC}"
""",
        )
    )
    proofs = {
        "shop": secret_proof(SECRET.encode(), "traces", "shop", b"v"),
        "lab": key_proof(PRIVATE, "traces", "lab", b"v"),
    }
    found = {
        name: known.effective("traces", b"v", [header], Source(name=name)).source
        for name, header in proofs.items()
    }
    assert {name: source and source.proven for name, source in found.items()} == {
        "shop": "secret",
        "lab": "key",
    }
    assert known.services is not None


def test_without_a_file_nothing_is_proven() -> None:
    known = known_sources(load_settings().sources)
    assert (known.checks, known.services, known.prefix_owner) == ({}, None, "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[sources]]\nname = "shop"\nsecret = "hush"\n', "sources.0.secret"),
        (f'[[sources]]\nname = "shop"\nsecret = "{SECRET}"\npublic_key = "{PUBLIC}"', "either secret or"),
        ('[[sources]]\nname = "shop"', "either secret or public_key"),
        ('[[sources]]\nname = "shop"\npublic_key = "AAAA"', "not an Ed25519 key"),
        (f'[[sources]]\nname = "key:web"\nsecret = "{SECRET}"', "begins with 'key:'"),
        (f'[[sources]]\nname = "unproven"\nsecret = "{SECRET}"', "neither 'unproven'"),
        (f'[[sources]]\nname = "a"\nsecret = "{SECRET}"\n' * 2, "appears twice"),
        (f'[[source]]\nname = "a"\nsecret = "{SECRET}"', "source"),
        (f'services_secret = "{SECRET}', "not TOML"),
    ],
)
def test_a_wrong_file_is_refused_and_no_secret_is_told(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        settings(tmp_path, text).file()
    assert says in str(refusal.value)
    assert SECRET not in str(refusal.value)
    assert "hush" not in str(refusal.value)
    assert refusal.value.__cause__ is None


def test_a_file_that_is_not_there_or_that_others_may_write_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings(sources_file=tmp_path / "none").sources.file()
    found = settings(tmp_path, "")
    (tmp_path / "sources.toml").chmod(0o666)
    with pytest.raises(ConfigurationError, match="written by everybody"):
        found.file()


def test_a_process_declares_the_name_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().sources.signer() is None
    monkeypatch.setenv("COMBEE_SOURCE", "shop")
    monkeypatch.setenv("COMBEE_SOURCE_SECRET", SECRET)
    loaded = load_settings()
    assert loaded.sources.signer() == Signer(name="shop", secret=SECRET.encode())
    assert SECRET in {secret.get_secret_value() for secret in loaded.secrets()}
    assert SECRET not in repr(loaded)


@pytest.mark.parametrize("name", ["key:web", "unproven"])
def test_no_declared_name_is_one_of_ours(name: str) -> None:
    for setting in ("source", "source_of_prefix"):
        with pytest.raises(SettingsError, match=setting.upper()):
            load_settings(**{setting: name})


def test_an_empty_path_in_the_environment_names_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SOURCES_FILE", "GATEWAY_KEYS_FILE", "SSL_CAFILE", "EVAL_QUESTIONS"):
        monkeypatch.setenv(f"COMBEE_{name}", "")
    loaded = load_settings()

    assert loaded.sources.file().sources == ()
    assert (loaded.sources.sources_file, loaded.gateway.gateway_keys_file) == (None, None)
    assert (loaded.kafka.ssl_cafile, loaded.evaluation.eval_questions) == (None, None)
