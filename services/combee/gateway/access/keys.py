"""API keys with their scopes and name spaces, stored as SHA-256, compared in constant time, reloaded on change."""

import hashlib
import hmac
import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import structlog
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from combee.adapters.ports import ConfigurationError
from combee.core.formats.files import is_name
from combee.core.names.sources import MAX_KEY_NAME
from combee.process.settings.gateway import GatewaySettings
from combee.process.settings.group import SettingsError
from combee.process.trusted_files import read_trusted
from combee_schemas.base import playbook_of

logger = structlog.get_logger()

Scope = Literal["reflections:write", "playbooks:read", "playbooks:admin"]
SCOPES: frozenset[Scope] = frozenset(("reflections:write", "playbooks:read", "playbooks:admin"))
SHORTEST = 16
HASH = re.compile(r"sha256:[0-9a-f]{64}")
EVERYTHING = ("",)
TOLD_AGAIN_MS = 60_000


def _namespace(given: str) -> str:
    """Return a normalised name space; refuse one that would include nothing, or everything by mistake."""
    if not given:
        raise ValueError("an empty name space: leave 'namespaces' out for a key of all playbooks")
    if is_name(given.removesuffix("/")):
        return given
    meant = given.strip("*/ ")
    hint = f": write {f'{meant}/'!r}" if is_name(meant) else ""
    raise ValueError(f"{given!r} cannot begin a playbook's name, and patterns are not supported{hint}")


class _Key(BaseModel):
    """One configured key."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    name: str = Field(min_length=1, max_length=MAX_KEY_NAME)
    key: SecretStr | None = Field(None, min_length=SHORTEST)
    hash: str | None = Field(None, pattern=f"^{HASH.pattern}$")
    scopes: frozenset[Scope] = Field(min_length=1)
    namespaces: tuple[Annotated[str, AfterValidator(_namespace)], ...] = Field(EVERYTHING, min_length=1)
    expires: AwareDatetime | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> "_Key":
        if (self.key is None) == (self.hash is None):
            raise ValueError("give either key or hash")
        return self

    def caller(self) -> "Caller":
        digest = bytes.fromhex((self.hash or "").removeprefix("sha256:"))
        return Caller(
            name=self.name,
            scopes=self.scopes,
            namespaces=self.namespaces,
            expires_ms=int(self.expires.timestamp() * 1000) if self.expires else None,
            digest=_digest(self.key.get_secret_value()) if self.key else digest,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A caller's scopes, and the name spaces of playbooks that it may access.

    ``support`` includes the playbook of that name and all below it, ``support/`` only those below it; a playbook's
    branches belong to the same name space.
    """

    name: str
    scopes: frozenset[Scope]
    namespaces: tuple[str, ...] = EVERYTHING
    expires_ms: int | None = None
    digest: bytes = field(default=b"", repr=False)

    def may_touch(self, line: str) -> bool:
        """Return whether a playbook, or a branch's playbook, is in one of the caller's name spaces."""
        playbook = playbook_of(line)
        return self.sees_all or any(
            playbook == namespace
            or playbook.startswith(namespace if namespace.endswith("/") else f"{namespace}/")
            for namespace in self.namespaces
        )

    @property
    def has_key(self) -> bool:
        """Whether a key was given."""
        return bool(self.digest)

    @property
    def sees_all(self) -> bool:
        """Whether every playbook is in the caller's name spaces."""
        return "" in self.namespaces


ANYBODY = Caller(name="anybody", scopes=SCOPES)
"""The caller if no keys are configured, which is allowed only on loopback."""


class Given(NamedTuple):
    """The keys of a file or a setting, and the scopes of callers without a key, None for no access."""

    callers: Sequence[Caller]
    anybody: Caller | None = None


class Keyring:
    """The keys of one gateway; without configured keys every caller is admitted.

    A file's keys are read again when it changes. If that fails, the previous keys stay valid and the error is logged.
    """

    def __init__(
        self,
        callers: Sequence[Caller] | None = None,
        *,
        anybody: Caller | None = None,
        file: Path | None = None,
        state: tuple[int, ...] | None = None,
    ) -> None:
        self._callers = callers or ()
        self.anybody = ANYBODY if callers is None else anybody
        """The caller without a key, None if a key is required."""
        self._file = file
        self._seen = state
        self._trouble = ""
        self._told_ms = 0

    def __bool__(self) -> bool:
        return self.anybody is not ANYBODY

    def caller(self, given: str | None, now_ms: int) -> Caller | None:
        """Return the key's caller, else the caller without a key; the time does not depend on which key matches."""
        digest, holder = _digest(given or ""), None
        for caller in self._callers:
            if hmac.compare_digest(caller.digest, digest):
                holder = caller
        return holder if holder and self.holds(holder, now_ms) else self.anybody

    def holds(self, caller: Caller, now_ms: int) -> bool:
        """Return whether a caller's key is still valid."""
        if not caller.has_key:
            return caller == self.anybody
        return caller in self._callers and (caller.expires_ms is None or now_ms < caller.expires_ms)

    def refresh(self, now_ms: int) -> None:
        """Read the keys again if their file has changed."""
        if self._file is None:
            return
        state = _state(self._file)
        if state != self._seen:
            self._seen, self._trouble = state, ""
            try:
                self._callers, self.anybody = _read(self._file, empty=True)
                logger.info("keys_read", file=str(self._file), keys=len(self._callers))
            except ConfigurationError as error:
                self._trouble, self._told_ms = str(error), now_ms - TOLD_AGAIN_MS
        if self._trouble and now_ms - self._told_ms >= TOLD_AGAIN_MS:
            self._told_ms = now_ms
            logger.error("keys_not_read", error=self._trouble, meanwhile="the keys read before hold")


def _state(file: Path) -> tuple[int, ...] | None:
    """Return a file's state to detect changes, None if it is missing."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogatepass")).digest()


def keyring(settings: GatewaySettings) -> Keyring:
    """Return the configured keys.

    Raises
    ------
    SettingsError
        If they cannot be read; the message contains no key.
    """
    source = "COMBEE_GATEWAY_KEYS"
    if settings.gateway_keys is not None and settings.gateway_keys_file is not None:
        raise SettingsError(f"{source} and {source}_FILE are both set: keep one of them")
    if settings.gateway_keys is not None:
        callers, anybody = _checked(settings.gateway_keys.get_secret_value(), source)
        return Keyring(callers, anybody=anybody)
    if settings.gateway_keys_file is None:
        return Keyring()
    path = settings.gateway_keys_file
    state = _state(path)  # before reading, so that a change during the read is noticed
    callers, anybody = _read(path)
    return Keyring(callers, anybody=anybody, file=path, state=state)


def _read(path: Path, *, empty: bool = False) -> Given:
    try:
        text = read_trusted(path)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"COMBEE_GATEWAY_KEYS_FILE: {path} cannot be read") from error
    return _checked(text, str(path), empty=empty)


def _checked(text: str, source: str, *, empty: bool = False) -> Given:
    """Return the keys in a text; ``empty`` allows a text without keys, after the last one was removed."""
    try:
        keys, scopes = TypeAdapter(tuple[list[_Key], frozenset[Scope]]).validate_python(_parsed(text))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(
            map(str, first["loc"][1:] if first["loc"][0] == 0 else (ANYBODY.name, *first["loc"][1:]))
        )
        raise SettingsError(f"{source}: {place}: {first['msg']}") from None
    except ValueError:
        raise SettingsError(f"{source}: neither a JSON list of keys nor TOML with [[keys]]") from None
    # An empty file is being written.
    if not keys and not (empty and text.strip()):
        raise SettingsError(f"{source}: it contains no key")
    callers = [key.caller() for key in keys]
    if len({caller.digest for caller in callers}) < len(callers):
        raise SettingsError(f"{source}: one key appears twice")
    return Given(callers, Caller(name=ANYBODY.name, scopes=scopes) if scopes else None)


def _parsed(text: str) -> tuple[Any, Any]:
    """Return the keys, and the scopes of callers without one."""
    if text.lstrip().startswith("[") and not text.lstrip().startswith("[["):
        return json.loads(text), []
    document = tomllib.loads(text)
    return document.get("keys", []), document.get(ANYBODY.name, [])
