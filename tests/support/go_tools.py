"""Command-line tools that are Go modules, built once and kept in the user's cache."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from platformdirs import user_cache_path

BUILD_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class GoTool:
    """A main package of a module; ``set_version`` names the variable that holds its version."""

    module: str
    version: str
    package: str = "."
    set_version: str | None = None

    @property
    def flags(self) -> list[str]:
        named = f" -X {self.set_version}={self.version}" if self.set_version else ""
        return ["-trimpath", "-ldflags", f"-s -w{named}"]


TOOLS = {
    "docker-compose": GoTool(
        module="github.com/docker/compose/v2",
        version="v2.40.3",
        package="./cmd",
        set_version="github.com/docker/compose/v2/internal.Version",
    ),
}
KUBERNETES = GoTool(module="k8s.io/kubernetes", version="v1.34.2")
"""Its sources hold the schemas of what an API server takes."""
KEDA = GoTool(module="github.com/kedacore/keda/v2", version="v2.18.1")


class NoGoError(RuntimeError):
    """There is no Go here."""


def tool(name: str) -> Path:
    """Return the program, building it if this user has not yet.

    Raises
    ------
    NoGoError
        If it has to be built and there is no Go.
    """
    wanted = TOOLS[name]
    program = user_cache_path("combee") / "tools" / f"{name}-{wanted.version}" / name
    if not program.exists():
        with TemporaryDirectory(prefix="combee-go-") as scratch:
            env, partial = _environment(Path(scratch)), Path(scratch) / name
            arguments = ["build", "-p", "1", "-mod=readonly", *wanted.flags, "-o", str(partial), wanted.package]
            _go(arguments, env, cwd=_fetched(wanted, env))
            program.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(partial, program)
    return program


def source(wanted: GoTool, *paths: str) -> Path:
    """Return a folder with these files or folders of a module's sources."""
    folder = user_cache_path("combee") / "tools" / f"{wanted.module.replace('/', '-')}-{wanted.version}"
    if not folder.exists():
        with TemporaryDirectory(prefix="combee-go-") as scratch:
            env = _environment(Path(scratch))
            fetched, partial = _fetched(wanted, env), Path(scratch) / "partial"
            for path in paths:
                (partial / path).parent.mkdir(parents=True, exist_ok=True)
                copy = shutil.copytree if (fetched / path).is_dir() else shutil.copy
                copy(fetched / path, partial / path)
            folder.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(partial, folder)
    return folder


def _environment(scratch: Path) -> Mapping[str, str]:
    if shutil.which("go") is None:
        raise NoGoError("there is no Go: install one")
    # Modules are read-only otherwise, and the folder could not be removed.
    own = {"GOMODCACHE": str(scratch / "mod"), "GOCACHE": str(scratch / "cache"), "GOFLAGS": "-modcacherw"}
    return {**os.environ, **own, "CGO_ENABLED": "0"}  # noqa: TID251 - a child needs a PATH and the proxy


def _fetched(wanted: GoTool, env: Mapping[str, str]) -> Path:
    said = _go(["mod", "download", "-json", f"{wanted.module}@{wanted.version}"], env)
    return Path(json.loads(said)["Dir"])


def _go(arguments: list[str], env: Mapping[str, str], cwd: Path | None = None) -> str:
    done = subprocess.run(
        ["nice", "-n", "19", "go", *arguments],
        env=env,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_S,
    )
    if done.returncode:
        raise RuntimeError(f"go {' '.join(arguments)}: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout
