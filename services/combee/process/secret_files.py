"""Secrets in files, as containers mount them: ``NAME_FILE`` in the environment names the file of ``NAME``."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from combee.adapters.ports import ConfigurationError

LONGEST = 1 << 16
"""Maximum bytes of a secret: a device or a wrong file may have no end."""
SUFFIX = "_FILE"


def secrets_in_files(environ: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return the secrets among ``names`` that the environment places in files, each without a last line break.

    Raises
    ------
    ConfigurationError
        If a secret is given twice, or its file cannot be read or has nothing in it; the message names the variable.
    """
    given = {name: environ[name + SUFFIX] for name in names if environ.get(name + SUFFIX)}
    for name in given:
        if environ.get(name):
            raise ConfigurationError(f"{name} and {name}{SUFFIX} are both set: unset one")
    return {name: _secret(name + SUFFIX, Path(path)) for name, path in given.items()}


def _secret(variable: str, path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(LONGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        remedy = f": make it readable for user {os.getuid()}" if isinstance(error, PermissionError) else ""
        raise ConfigurationError(f"{variable}: {path} cannot be read ({reason}){remedy}") from error
    secret = text.removesuffix("\n").removesuffix("\r")
    if not secret or len(text) > LONGEST:
        raise ConfigurationError(
            f"{variable}: {path} holds {'no secret' if not secret else 'more than a secret'}"
        )
    return secret
