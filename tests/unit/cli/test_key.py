"""``combee key``: a key or a secret in a file for its owner alone, and the two lines that an agent needs."""

import fcntl
import sys
import tomllib
from pathlib import Path

import pytest

from combee.assembly.backends import known_sources
from combee.assembly.local.admin_key import admin_key
from combee.assembly.local.keys import known_here, with_keys
from combee.assembly.local.stack import StackOptions, child_environment
from combee.cli.shared.settings import deployed_settings
from combee.core.names.sources import MAX_KEY_NAME, secret_proof
from combee.gateway.access.keys import keyring
from combee.process.settings.loading import Settings, load_settings
from combee_schemas.base import Source
from support.reading import run


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMBEE_DATA_DIR", str(tmp_path / "data"))


def lines(*arguments: str) -> list[str]:
    made = run("key", *arguments)
    assert made.exit_code == 0, made.output
    return made.stdout.splitlines()


def test_a_gateway_key_lets_its_holder_in_and_only_the_hash_is_kept(tmp_path: Path) -> None:
    url, key = lines("support-bot")
    assert url == "export COMBEE_GATEWAY_URL=http://127.0.0.1:8750"
    secret = key.removeprefix("export COMBEE_GATEWAY_KEY=")
    lines("alice", "--admin")
    file = tmp_path / "data" / "keys.toml"
    assert secret not in file.read_text("utf-8")
    assert file.stat().st_mode & 0o077 == 0
    ring = keyring(load_settings(gateway_keys_file=file).gateway)
    caller = ring.caller(secret, 0)
    assert caller is not None
    assert (caller.name, sorted(caller.scopes)) == ("support-bot", ["playbooks:read", "reflections:write"])
    assert ring.caller("another", 0) is None
    scopes = [set(known["scopes"]) for known in tomllib.loads(file.read_text("utf-8"))["keys"]]
    assert ["playbooks:admin" in each for each in scopes] == [False, True]


def test_a_gateway_key_is_said_to_prove_nothing_without_the_services_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "".join(run("key", "support-bot").stderr.split())
    assert f"COMBEE_SOURCES_FILE={tmp_path / 'data' / 'sources.toml'}" in said
    monkeypatch.setenv("COMBEE_SOURCES_FILE", str(tmp_path / "data" / "sources.toml"))
    assert "COMBEE_SOURCES_FILE" not in run("key", "alice").stderr


def test_a_gateway_on_a_free_port_has_no_port_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMBEE_GATEWAY_PORT", "0")
    made = run("key", "support-bot")
    assert made.stdout.splitlines()[0] == "export COMBEE_GATEWAY_URL=http://127.0.0.1:PORT"
    assert "replace PORT" in made.stderr
    assert "PORT" not in run("key", "shop", "--kafka").stderr.replace("COMBEE_SOURCES_FILE", "")


def test_a_secret_proves_its_source_and_services_vouch_with_another(tmp_path: Path) -> None:
    name, secret = lines("shop", "--kafka")
    assert name == "export COMBEE_SOURCE=shop"
    settings = load_settings(sources_file=tmp_path / "data" / "sources.toml").sources
    proof = secret_proof(
        secret.removeprefix("export COMBEE_SOURCE_SECRET=").encode(), "reflections", "shop", b"x"
    )
    effective = known_sources(settings).effective("reflections", b"x", (proof,), Source(name="shop"))
    assert (effective.source, effective.is_forged) == (Source(name="shop", proven="secret"), False)
    assert settings.services_secret()


def test_a_name_is_given_once_and_nobody_s_else(tmp_path: Path) -> None:
    lines("shop")
    before = (tmp_path / "data" / "keys.toml").read_text("utf-8")
    for arguments, why in (
        (("shop",), "has 'shop' already"),
        (("unproven",), "is not the name of a source"),
        (("a b",), "spaces or unseen"),
        (('x"\n[[keys]]',), "spaces or unseen"),
        (("x", "--kafka", "--admin"), "--admin is for gateway keys"),
    ):
        refused = run("key", *arguments)
        assert refused.exit_code != 0
        assert why in " ".join(refused.stderr.split())
    assert (tmp_path / "data" / "keys.toml").read_text("utf-8") == before


def test_a_name_beyond_sixteen_bits_leaves_both_files_readable(tmp_path: Path) -> None:
    lines("\N{HONEYBEE}")
    assert lines("\N{HONEYBEE}", "--kafka")[0] == "export COMBEE_SOURCE='\N{HONEYBEE}'"
    for file, table in (("keys.toml", "keys"), ("sources.toml", "sources")):
        known = tomllib.loads((tmp_path / "data" / file).read_text("utf-8"))[table]
        assert [each["name"] for each in known] == ["\N{HONEYBEE}"]


def test_a_name_that_a_shell_would_run_is_quoted() -> None:
    assert lines("$(id)", "--kafka")[0] == "export COMBEE_SOURCE='$(id)'"


def test_two_names_of_keys_are_two_sources() -> None:
    """Cut to the length of a source's name, two long ones would be one."""
    lines("x" * MAX_KEY_NAME)
    refused = run("key", "x" * (MAX_KEY_NAME + 1))
    assert "1 to 76 characters" in " ".join(refused.stderr.split())
    assert lines("x" * (MAX_KEY_NAME + 1), "--kafka")


def test_a_file_that_others_may_write_is_not_believed(tmp_path: Path) -> None:
    lines("shop")
    file = tmp_path / "data" / "keys.toml"
    file.chmod(0o666)
    assert "can be written by everybody" in " ".join(run("key", "desk").stderr.split())


def test_what_proves_sources_here_is_the_configured_file_or_this_user_s_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert known_here(load_settings()).sources_file is None
    lines("shop", "--kafka")
    assert known_here(load_settings()).sources_file == tmp_path / "data" / "sources.toml"
    own = tmp_path / "own.toml"
    own.touch()
    assert known_here(load_settings(sources_file=own)).sources_file == own
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert known_here(load_settings()).sources_file is None


def test_services_that_a_command_starts_prove_sources_by_the_same_file(tmp_path: Path) -> None:
    """What waited when 'combee up --keys' ended was unproven for good once 'combee learn' had batched it."""
    lines("shop", "--kafka")
    options = StackOptions(settings=deployed_settings(), bootstrap_servers="broker:1", folder=tmp_path)
    assert child_environment(options)["COMBEE_SOURCES_FILE"] == str(tmp_path / "data" / "sources.toml")


def test_who_starts_without_keys_still_knows_what_was_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waited when 'combee up --keys' ended was unproven for good once 'combee up' had batched it."""
    lines("shop", "--kafka")
    started: list[Settings] = []

    async def start(settings: Settings, *_: object, **__: object) -> None:
        started.append(settings)

    monkeypatch.setattr("combee.cli.up._up", start)
    run("up", "--simulated")
    assert [settings.sources.sources_file for settings in started] == [tmp_path / "data" / "sources.toml"]


def test_with_keys_everybody_needs_one_and_the_admin_has_one() -> None:
    settings = load_settings()
    admin = admin_key(settings)
    for _ in range(2):
        settings = with_keys(load_settings(), admin)
    ring = keyring(settings.gateway)
    assert ring.caller(None, 0) is None
    caller = ring.caller(admin.key, 0)
    assert caller is not None
    assert "playbooks:admin" in caller.scopes
    assert known_sources(settings.sources).can_prove


def test_an_admin_key_made_anew_opens_the_gateway_in_place_of_the_former_one() -> None:
    lines("admin")
    former = admin_key(load_settings())
    with_keys(load_settings(), former)
    former.path.unlink()
    admin = admin_key(load_settings())
    ring = keyring(with_keys(load_settings(), admin).gateway)
    assert ring.caller(former.key, 0) is None
    assert ring.caller(admin.key, 0)


def test_two_commands_at_once_do_not_overwrite_each_other_s_key(tmp_path: Path) -> None:
    lines("shop")
    with (tmp_path / "data" / ".sources.toml.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        for arguments in (("desk",), ("desk", "--kafka")):
            assert "try again" in run("key", *arguments).stderr
    assert lines("desk")
