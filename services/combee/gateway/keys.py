"""API keys: what each may do and see. Kept as SHA-256 alone, compared in constant time."""

import hashlib
import hmac
import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, TypeAdapter, ValidationError, model_validator

from combee.runtime.gateway_settings import GatewaySettings
from combee.runtime.group import SettingsError

Scope = Literal["reflections:write", "playbooks:read", "playbooks:admin"]
SCOPES: frozenset[Scope] = frozenset(("reflections:write", "playbooks:read", "playbooks:admin"))
SHORTEST = 16
HASH = re.compile(r"sha256:[0-9a-f]{64}")


class _Key(BaseModel):
    """One key as it is configured."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    name: str = Field(min_length=1, max_length=100)
    key: SecretStr | None = Field(None, min_length=SHORTEST)
    hash: str | None = Field(None, pattern=f"^{HASH.pattern}$")
    scopes: frozenset[Scope] = Field(min_length=1)
    namespaces: tuple[str, ...] = Field(("",), min_length=1)

    @model_validator(mode="after")
    def _one_of_both(self) -> "_Key":
        if (self.key is None) == (self.hash is None):
            raise ValueError("give either key or hash")
        return self

    def digest(self) -> bytes:
        if self.key is not None:
            return _digest(self.key.get_secret_value())
        return bytes.fromhex((self.hash or "").removeprefix("sha256:"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks: what they may do, and the beginnings of the playbook names they may touch."""

    name: str
    scopes: frozenset[Scope]
    namespaces: tuple[str, ...] = ("",)

    def may_touch(self, playbook: str) -> bool:
        """Return whether a playbook is in one of the caller's name spaces."""
        return playbook.startswith(self.namespaces)

    @property
    def sees_all(self) -> bool:
        """Whether every playbook is."""
        return "" in self.namespaces


ANYBODY = Caller(name="anybody", scopes=SCOPES)
"""Where no keys are configured, which only loopback allows."""


class Keyring:
    """The keys of one gateway; an empty one opens for anybody."""

    def __init__(self, keys: Sequence[tuple[bytes, Caller]] = ()) -> None:
        self._keys = tuple(keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def caller(self, given: str | None) -> Caller | None:
        """Return whose key was given; None if nobody's. It takes as long for the first key as for none."""
        if not self._keys:
            return ANYBODY
        digest, found = _digest(given or ""), None
        for known, caller in self._keys:
            if hmac.compare_digest(known, digest):
                found = caller
        return found


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogatepass")).digest()


def keyring(settings: GatewaySettings) -> Keyring:
    """Return the configured keys.

    Raises
    ------
    SettingsError
        If they cannot be read; no key is ever part of the message.
    """
    source = "COMBEE_GATEWAY_KEYS"
    if settings.gateway_keys is not None and settings.gateway_keys_file is not None:
        raise SettingsError(f"{source} and {source}_FILE are both set: keep one of them")
    if settings.gateway_keys is not None:
        return _checked(settings.gateway_keys.get_secret_value(), source)
    if settings.gateway_keys_file is None:
        return Keyring()
    path = settings.gateway_keys_file
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{source}_FILE: {path} cannot be read") from error
    return _checked(text, str(path))


def _checked(text: str, source: str) -> Keyring:
    try:
        keys = TypeAdapter(list[_Key]).validate_python(_parsed(text))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise SettingsError(f"{source}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except ValueError:
        raise SettingsError(f"{source}: neither a JSON list of keys nor TOML with [[keys]]") from None
    if not keys:
        raise SettingsError(f"{source}: no key is in it")
    callers = [
        (one.digest(), Caller(name=one.name, scopes=one.scopes, namespaces=one.namespaces)) for one in keys
    ]
    if len({digest for digest, _ in callers}) < len(callers):
        raise SettingsError(f"{source}: one key is there twice")
    return Keyring(callers)


def _parsed(text: str) -> Any:
    if text.lstrip().startswith("[") and not text.lstrip().startswith("[["):
        return json.loads(text)
    return tomllib.loads(text).get("keys", [])
