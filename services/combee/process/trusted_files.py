"""Files that are believed: only this user or root can have written them."""

import grp
import os
import pwd
import stat
from pathlib import Path

from combee.adapters.ports import ConfigurationError

ROOT = 0


def read_trusted(path: Path) -> str:
    """Return the text of a file that only this user or root can have written.

    Raises
    ------
    ConfigurationError
        If somebody else can.
    OSError, UnicodeDecodeError
        If it cannot be read.
    """
    with path.open(encoding="utf-8") as file:
        # Checks the open file: its name may point elsewhere a moment later.
        _check(path, os.fstat(file.fileno()))
        return file.read()


def check_trusted(path: Path) -> None:
    """Refuse a file or folder that another user can write; a missing one is accepted.

    Raises
    ------
    ConfigurationError
        If another user can write it; the message has the remedy.
    """
    if path.exists():
        _check(path, path.stat())


def _check(path: Path, info: os.stat_result) -> None:
    link = path.lstat()
    reason = distrust(info, user=os.geteuid(), own_group=_own_group())
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in {os.geteuid(), ROOT}:
        reason = "is a link that somebody else made: replace it"
    if reason:
        raise ConfigurationError(f"{path} {reason.format(path=path)}")


def distrust(info: os.stat_result, *, user: int, own_group: int | None) -> str:
    """Return why a file is not trusted, with the remedy (``{path}`` stands for it); empty: it is trusted."""
    if info.st_uid not in {user, ROOT}:
        return f"belongs to user {info.st_uid}, not to you ({user}) or root: 'chown {user} {{path}}' if you trust it"
    if info.st_mode & stat.S_IWOTH:
        return "can be written by everybody: 'chmod o-w {path}'"
    if info.st_mode & stat.S_IWGRP and info.st_gid != own_group:
        return f"can be written by group {info.st_gid}, which is not yours alone: 'chmod g-w {{path}}'"
    return ""


def _own_group() -> int | None:
    """Return this user's private group, which many systems create per user; None: there is none."""
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(os.getegid())
    except KeyError:  # a container's only user, without a name
        return os.getegid()
    alone = group.gr_name == user.pw_name and not set(group.gr_mem) - {user.pw_name}
    return group.gr_gid if alone else None
