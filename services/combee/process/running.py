"""The deployments that ``combee up`` runs on this machine, as agents and commands find them.

Agents load it: it needs no library besides the standard one.
"""

import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from combee.adapters.ports import ConfigurationError
from combee.process.trusted_files import read_trusted

UP = "combee up"
HERE, ELSEWHERE = "stack-*.json", "elsewhere-*.json"
"""Stack files of a data directory, and the user folder's links to those of other data directories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A running ``combee up``."""

    pid: int
    data_dir: Path
    prefix: str
    bootstrap_servers: str
    http: str
    """The gateway's address; empty without one."""
    is_up: bool
    """Whether all services run; False while it starts."""
    embedded: bool
    """Whether it runs its own broker."""

    @property
    def named(self) -> str:
        """The deployment for people."""
        where = (self.http or self.bootstrap_servers) if self.is_up else "still starting"
        return f"{UP} (process {self.pid}, {where}, data in {self.data_dir}, prefix {self.prefix})"


def user_data_dir(environ: Mapping[str, str]) -> Path:
    """Return this user's data folder, as ``platformdirs`` names it."""
    given = Path(environ.get("XDG_DATA_HOME", ""))
    if given.is_absolute():
        return given / "combee"
    home = Path(environ.get("HOME") or Path.home())
    return home / ("Library/Application Support" if sys.platform == "darwin" else ".local/share") / "combee"


def running(
    data_dir: Path | None, environ: Mapping[str, str], *, prefix: str | None = None
) -> tuple[Running, ...]:
    """Return the deployments with this topic prefix (None: any) in a data directory, else all of this user."""
    files: Iterable[Path] = ()
    if data_dir is not None:
        files = data_dir.glob(HERE)
    else:
        with suppress(RuntimeError):  # a user without a home folder
            user = user_data_dir(environ)
            files = [*user.glob(HERE), *(link.resolve() for link in user.glob(ELSEWHERE))]
    found = (_running(path) for path in sorted(set(files)) if is_held(path))
    return tuple(one for one in found if one is not None and prefix in {None, one.prefix})


def sole(found: tuple[Running, ...], remedy: str) -> Running | None:
    """Return the only deployment, None if there is none.

    Raises
    ------
    ConfigurationError
        If there are several; the message names each and ends with ``remedy``.
    """
    if len(found) > 1:
        names = "; ".join(one.named for one in found)
        raise ConfigurationError(f"{len(found)} deployments run on this machine: {names}; {remedy}")
    return found[0] if found else None


def state_of(path: Path) -> dict[str, Any]:
    """Return the content of a stack's file; empty without a readable one."""
    try:
        state = json.loads(read_trusted(path))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def is_held(path: Path) -> bool:
    """Return whether a command that runs holds the lock of a stack's file; the kernel drops it at its end."""
    try:
        lock = os.open(path.with_suffix(".lock"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def announce(path: Path, environ: Mapping[str, str]) -> Path | None:
    """Link a stack's file of another data directory in the user's folder; return the link, None for no link.

    Links of deployments that ended without removing theirs are removed.
    """
    try:
        user = user_data_dir(environ)
        if path.parent.resolve() == user.resolve():
            return None
        link = user / f"elsewhere-{hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:16]}.json"
        user.mkdir(mode=0o700, parents=True, exist_ok=True)
        for other in user.glob(ELSEWHERE):
            if other == link or not is_held(other.resolve()):
                other.unlink(missing_ok=True)
        link.symlink_to(path.absolute())
    except (OSError, RuntimeError):
        # A container without a home folder: agents on other machines name an address anyway.
        return None
    return link


def _running(path: Path) -> Running | None:
    """Return what a stack's file says; None for another command than ``combee up``."""
    with suppress(ConfigurationError):  # another user can write it: it is not believed
        state = state_of(path)
        if state.get("command") == UP:
            name, _, cluster = path.stem.removeprefix("stack-").partition("@")
            return Running(
                pid=int(state.get("pid") or 0),
                data_dir=path.parent,
                prefix=name,
                bootstrap_servers=str(state.get("bootstrap_servers") or ""),
                http=str(state.get("http") or ""),
                is_up="http" in state,
                embedded=not cluster,
            )
    return None
