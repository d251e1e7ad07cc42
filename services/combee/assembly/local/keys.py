"""Keys and secrets that prove who somebody is: made here, and kept in files for their owner alone."""

import fcntl
import hashlib
import json
import os
import secrets
import shlex
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from combee.assembly.local.admin_key import AdminKey
from combee.assembly.local.stack_file import data_dir
from combee.process.settings.group import SettingsError
from combee.process.settings.loading import Settings
from combee.process.settings.sources import LONGEST_KEY_NAME, LONGEST_NAME, DeclaredSource, SourceSettings
from combee.process.trusted_files import read_trusted

KEY_BYTES = 24
AGENT, ADMIN = ("reflections:write", "playbooks:read"), ("playbooks:admin",)
"""Scopes of an agent's key, and what a person's has in addition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A new key or secret, and the lines with which an agent proves who it is."""

    name: str
    """The name under which its lessons count."""
    path: Path
    lines: tuple[str, str] = field(repr=False)
    reload: str
    """What makes services know it."""


def keys_path(settings: Settings) -> Path:
    """Return the file of the gateway's keys: the configured one, or this user's."""
    return settings.gateway.gateway_keys_file or data_dir(settings) / "keys.toml"


def sources_path(settings: Settings) -> Path:
    """Return the file of sources: the configured one, or this user's."""
    return settings.sources.sources_file or data_dir(settings) / "sources.toml"


def known_here(settings: Settings) -> SourceSettings:
    """Return what proves sources to a command: without a configured file this user's, which 'combee up --keys' reads.

    Without it a command takes a forged proof of what waits for its batch for a real one.
    """
    try:
        path = sources_path(settings)
    except ModuleNotFoundError:  # the embedded broker's extra: there is no folder of this user
        return settings.sources
    return settings.sources.model_copy(update={"sources_file": path}) if path.exists() else settings.sources


def new_key(settings: Settings, name: str, *, admin: bool, url: str) -> NewKey:
    """Make a gateway key.

    Raises
    ------
    SettingsError
        If there is one of this name, or a file cannot be trusted or read.
    OSError
        If a file cannot be written.
    """
    path, key, sources = keys_path(settings), secrets.token_urlsafe(KEY_BYTES), sources_path(settings)
    is_set = settings.sources.sources_file is not None
    proving = (
        "" if is_set else f", and for all services COMBEE_SOURCES_FILE={sources}, or its name is not proven"
    )
    with _alone(sources):
        known = (known["name"] for known in _read(path).get("keys", ()))
        _check_new(name, known, path, longest=LONGEST_KEY_NAME)
        _with_services_secret(sources)
        _append(path, _key_text(name, key, (*AGENT, *(ADMIN if admin else ()))))
    return NewKey(
        name=f"key:{name}",
        path=path,
        lines=(f"export COMBEE_GATEWAY_URL={url}", f"export COMBEE_GATEWAY_KEY={key}"),
        reload=_reload("COMBEE_GATEWAY_KEYS_FILE", path, settings.gateway.gateway_keys_file is not None)
        + proving,
    )


def new_secret(settings: Settings, name: str) -> NewKey:
    """Make the secret of a producer that writes to Kafka itself.

    Raises
    ------
    SettingsError
        If there is a source of this name, or the file cannot be trusted or read.
    OSError
        If the file cannot be written.
    """
    path, secret = sources_path(settings), secrets.token_urlsafe(KEY_BYTES)
    with _alone(path):
        _check_new(name, (known["name"] for known in _read(path).get("sources", ())), path)
        _with_services_secret(path)
        _append(path, f'[[sources]]\nname = {_quoted(name)}\nsecret = "{secret}"\n')
    return NewKey(
        name=name,
        path=path,
        lines=(f"export COMBEE_SOURCE={shlex.quote(name)}", f"export COMBEE_SOURCE_SECRET={secret}"),
        reload=_reload("COMBEE_SOURCES_FILE", path, settings.sources.sources_file is not None)
        + "; services read it when they start",
    )


def with_keys(settings: Settings, admin: AdminKey) -> Settings:
    """Return settings under which everybody needs a key; the files are made, with the admin's key in them.

    The key has its file's name. One that was made anew opens the gateway in place of the former one.

    Raises
    ------
    SettingsError, OSError
        As for ``new_key``.
    """
    keys, sources = keys_path(settings), sources_path(settings)
    name, now = admin.path.name[-LONGEST_KEY_NAME:], _hash(admin.key)
    with _alone(sources):
        _with_services_secret(sources)
        known = {known.get("name"): known.get("hash") for known in _read(keys).get("keys", ())}
        if former := known.get(name):
            _write(keys, keys.read_text("utf-8").replace(former, now))
        elif now not in known.values():
            _append(keys, _key_text(name, admin.key, (*AGENT, *ADMIN)))
    return replace(
        settings,
        gateway=settings.gateway.model_copy(update={"gateway_keys_file": keys}),
        sources=settings.sources.model_copy(update={"sources_file": sources}),
    )


def _reload(variable: str, path: Path, is_set: bool) -> str:  # noqa: FBT001 - a fact, no option
    return (
        f"{variable} names it" if is_set else f"'combee up --keys' reads it; elsewhere set {variable}={path}"
    )


def _key_text(name: str, key: str, scopes: Iterable[str]) -> str:
    return f'[[keys]]\nname = {_quoted(name)}\nhash = "{_hash(key)}"\nscopes = {json.dumps([*scopes])}\n'


def _quoted(name: str) -> str:
    """Return a name as a TOML string; JSON's escapes beyond 16 bits are none of TOML."""
    return json.dumps(name, ensure_ascii=False)


def _hash(key: str) -> str:
    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def _check_new(name: str, known: Iterable[str], path: Path, *, longest: int = LONGEST_NAME) -> None:
    complaint = f"{name!r} is not the name of a source: 1 to {longest} characters, none reserved"
    try:
        DeclaredSource(name=name, secret="x" * KEY_BYTES)
    except ValueError as error:
        raise SettingsError(complaint) from error
    if len(name) > longest:
        raise SettingsError(complaint)
    if not name.isprintable() or " " in name:
        raise SettingsError(f"{name!r} is not the name of a source: it has spaces or unseen characters")
    if name in set(known):
        raise SettingsError(
            f"{path} has {name!r} already: take that out of the file first, or choose another name"
        )


def _with_services_secret(path: Path) -> None:
    """Let the gateway and reflect vouch for the sources that they verified."""
    if "services_secret" not in _read(path):
        text = path.read_text("utf-8") if path.exists() else ""
        _write(path, f'services_secret = "{secrets.token_urlsafe(KEY_BYTES)}"\n\n{text}')


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep other commands from the files of keys and sources meanwhile: each is read and written as a whole."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SettingsError(f"another command is writing {path}: try again") from error
        yield


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_trusted(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read as TOML: {error}") from error


def _append(path: Path, text: str) -> None:
    known = path.read_text("utf-8") if path.exists() else ""
    _write(path, f"{known}{'' if not known or known.endswith(chr(10)) else chr(10)}{text}")


def _write(path: Path, text: str) -> None:
    """Replace a file as a whole, so that no reader sees half of it; nobody else may read it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(
            os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
