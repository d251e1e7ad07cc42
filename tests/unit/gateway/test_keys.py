"""The keys of the gateway: how they are given, kept and compared."""

import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from combee.adapters.ports import ConfigurationError, FatalError
from combee.gateway.access.keys import ANYBODY, keyring
from combee.gateway.server import check_bind
from combee.process.settings.gateway import GatewaySettings
from combee.process.settings.group import SettingsError
from support.gateway import ADMIN, CONFIGURED, KEYS, WRITER
from support.rows import each_row


def bind(**given: Any) -> None:
    settings = GatewaySettings(**given)
    check_bind(settings, keyring(settings))


def test_the_gateway_is_not_opened_to_others_without_keys() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1"):  # noqa: S104 - refused
        with pytest.raises(FatalError, match="COMBEE_GATEWAY_KEYS"):
            bind(gateway_host=host)
        bind(gateway_host=host, gateway_keys=CONFIGURED["gateway_keys"])
    for host in ("127.0.0.1", "::1", "localhost", "127.0.0.2"):
        bind(gateway_host=host)
    with pytest.raises(FatalError, match="COMBEE_GATEWAY_HOST"):
        bind(gateway_host="some.name")


def test_keys_come_from_a_file_too(tmp_path: Path) -> None:
    toml = tmp_path / "keys.toml"
    toml.write_text(f'[[keys]]\nname = "a"\nkey = "{WRITER}"\nscopes = ["reflections:write"]\n')
    as_json = tmp_path / "keys.json"
    as_json.write_text(json.dumps(KEYS))

    for path in (toml, as_json):
        found = keyring(GatewaySettings(gateway_keys_file=path)).caller(WRITER, 0)
        assert found is not None
        assert found.scopes == {"reflections:write"}


@each_row(
    "wrong",
    [
        [],
        [{"name": "a", "key": "too-short", "scopes": ["playbooks:read"]}],
        [{"name": "a" * 77, "key": WRITER, "scopes": ["playbooks:read"]}],
        [{"name": "a", "key": WRITER, "scopes": ["everything"]}],
        [{"name": "a", "key": WRITER, "scopes": []}],
        [{"name": "a", "key": WRITER, "hash": "sha256:" + "0" * 64, "scopes": ["playbooks:read"]}],
        [{"name": "a", "scopes": ["playbooks:read"]}],
        [{"name": "a", "hash": "0" * 64, "scopes": ["playbooks:read"]}],
        [{"name": "a", "key": WRITER, "scopes": ["playbooks:read"], "namespaces": []}],
        [{"name": "a", "key": WRITER, "scopes": ["playbooks:read"], "admin": True}],
        [{"name": n, "key": WRITER, "scopes": ["playbooks:read"]} for n in "ab"],
        {"not": "a list"},
        "not JSON",
    ],
)
def test_wrong_keys_are_refused_at_start_and_never_told(wrong: Any) -> None:
    text = wrong if isinstance(wrong, str) else json.dumps(wrong)
    with pytest.raises(SettingsError) as refused:
        keyring(GatewaySettings(gateway_keys=text))
    assert WRITER not in str(refused.value)
    assert "too-short" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_key_that_is_a_file_and_a_variable_is_refused(tmp_path: Path) -> None:
    both = GatewaySettings(gateway_keys="[]", gateway_keys_file=tmp_path / "none")
    with pytest.raises(SettingsError, match="both"):
        keyring(both)
    with pytest.raises(SettingsError, match="cannot be read"):
        keyring(GatewaySettings(gateway_keys_file=tmp_path / "none"))


def test_every_key_is_compared_in_constant_time_whatever_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    library = hmac.compare_digest

    def compare(known: bytes, given: bytes) -> bool:
        compared.append((known, given))
        return library(known, given)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    ring = keyring(GatewaySettings(**CONFIGURED))
    for given in (WRITER, ADMIN, "x", "", None, "\ud800"):
        compared.clear()
        ring.caller(given, 0)
        assert len(compared) == len(KEYS)
        assert {len(one) for pair in compared for one in pair} == {32}


def test_without_keys_everybody_may_do_everything() -> None:
    assert keyring(GatewaySettings()).caller(None, 0) is ANYBODY


def test_settings_never_show_a_key() -> None:
    settings = GatewaySettings(**CONFIGURED)
    assert WRITER not in repr(settings) + str(settings.model_dump())
    assert WRITER not in repr(keyring(settings).caller(WRITER, 0))


# ---- name spaces, and how long a key lasts


def one_key(**fields: Any) -> GatewaySettings:
    return GatewaySettings(
        gateway_keys=json.dumps([{"name": "a", "key": WRITER, "scopes": ["playbooks:read"], **fields}])
    )


@each_row(
    ("namespace", "holds", "holds_not"),
    [
        ("support", ["support", "support/refunds", "support/a/b"], ["support-x", "supportive", "legal"]),
        ("support/", ["support/refunds", "support/a/b"], ["support", "support-x", "supportive/x"]),
        (
            "support/refunds",
            ["support/refunds", "support/refunds/eu", "support/refunds@exp", "support/refunds/eu@exp"],
            ["support/refunds-x", "support/other", "support@exp", "support/refunds-x@exp"],
        ),
    ],
)
def test_a_name_space_ends_at_a_slash(namespace: str, holds: list[str], holds_not: list[str]) -> None:
    caller = keyring(one_key(namespaces=[namespace])).caller(WRITER, 0)
    assert caller is not None
    assert not caller.sees_all
    assert [name for name in (*holds, *holds_not) if caller.may_touch(name)] == holds


@each_row(
    ("namespace", "says"),
    [
        ("support/*", "write 'support/'"),
        ("*/refunds", "patterns are not supported"),
        ("/support/", "write 'support/'"),
        ("*", "patterns are not supported"),
        ("", "leave 'namespaces' out"),
    ],
)
def test_a_name_space_that_would_silently_hold_nothing_or_all_is_refused_with_its_remedy(
    namespace: str, says: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        keyring(one_key(namespaces=[namespace]))
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_key_ends_when_it_expires() -> None:
    ring = keyring(one_key(expires="2026-01-01T00:00:00Z"))
    end_ms = 1_767_225_600_000
    caller = ring.caller(WRITER, end_ms - 1)
    assert caller is not None
    assert ring.holds(caller, end_ms - 1)
    assert ring.caller(WRITER, end_ms) is None
    assert not ring.holds(caller, end_ms)
    with pytest.raises(SettingsError, match="timezone"):
        keyring(one_key(expires="2026-01-01T00:00:00"))


def test_a_keys_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps(KEYS))
    path.chmod(0o666)
    with pytest.raises(ConfigurationError, match=r"keys\.json can be written by everybody"):
        keyring(GatewaySettings(gateway_keys_file=path))


def test_what_needs_no_key_is_said_beside_the_keys_and_opens_loopback_alone() -> None:
    text = f'anybody = ["playbooks:read"]\n[[keys]]\nname = "a"\nkey = "{WRITER}"\nscopes = ["reflections:write"]\n'
    keys = keyring(GatewaySettings(gateway_keys=SecretStr(text)))
    anybody = keys.caller(None, 0)
    assert anybody is not None
    assert anybody.scopes == {"playbooks:read"}
    assert not anybody.has_key
    assert keys.holds(anybody, 0)
    assert not keys.holds(ANYBODY, 0)
    holder = keys.caller(WRITER, 0)
    assert holder is not None
    assert holder.has_key
    with pytest.raises(FatalError, match="COMBEE_GATEWAY_KEYS"):
        bind(gateway_host="0.0.0.0", gateway_keys=SecretStr(text))  # noqa: S104 - refused
    with pytest.raises(SettingsError, match="anybody"):
        keyring(GatewaySettings(gateway_keys=SecretStr(text.replace("playbooks:read", "all"))))
