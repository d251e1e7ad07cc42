"""Command-line tools that are Go modules, built once and kept in the user's cache."""

import json
import os
import re
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
ETCD = GoTool(module="go.etcd.io/etcd/server/v3", version="v3.6.4")
PROGRAMS = {"etcd": ETCD.module, "kube-apiserver": f"{KUBERNETES.module}/cmd/kube-apiserver"}
"""Packages of a Kubernetes without nodes."""
PROMETHEUS_OPERATOR = GoTool(module="github.com/prometheus-operator/prometheus-operator", version="v0.80.1")


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
            arguments = [
                "build",
                "-p",
                "1",
                "-mod=readonly",
                *wanted.flags,
                "-o",
                str(partial),
                wanted.package,
            ]
            _go(arguments, env, cwd=_fetched(wanted, env))
            program.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(partial, program)
    return program


def kubernetes_programs(*names: str, build: bool = False) -> list[Path]:
    """Return ``etcd`` or ``kube-apiserver``: from the PATH or the cache, else built, which takes some ten minutes.

    Raises
    ------
    NoGoError
        If they have to be built and ``build`` is not said, or there is no Go.
    """
    cached = user_cache_path("combee") / "tools" / f"kubernetes-programs-{KUBERNETES.version}"
    installed = [Path(shutil.which(name) or cached / name) for name in names]
    if all(program.exists() for program in installed):
        return installed
    if not build:
        raise NoGoError("no API server of Kubernetes is here")
    with TemporaryDirectory(prefix="combee-go-") as scratch:
        env, partial = _environment(Path(scratch)), Path(scratch) / "partial"
        partial.mkdir()
        _write_module(Path(scratch) / "cluster", _fetched(KUBERNETES, env))
        for name, package in PROGRAMS.items():
            # Tests need no fast program: without the optimizer it is built in half the time.
            arguments = ["build", "-p", "2", "-mod=mod", "-trimpath", "-gcflags=all=-N -l -dwarf=false"]
            flags = ["-ldflags", f"-s -w {_version_flags()}"]
            _go([*arguments, *flags, "-o", str(partial / name), package], env, cwd=Path(scratch) / "cluster")
        cached.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(partial, cached)
    return [cached / name for name in names]


def _write_module(folder: Path, kubernetes: Path) -> None:
    """Write a module that needs both; the parts of Kubernetes that it has in its own tree are modules, too."""
    own = re.findall(r"^\t(\S+) => \./staging", (kubernetes / "go.mod").read_text("utf-8"), re.MULTILINE)
    part = KUBERNETES.version.replace("v1.", "v0.")
    lines = ["module cluster", "go 1.24.0", "godebug default=go1.24"]
    lines += [f"require {each.module} {each.version}" for each in (KUBERNETES, ETCD)]
    lines += [f"replace {name} => {name} {part}" for name in own]
    folder.mkdir()
    (folder / "go.mod").write_text("\n".join(lines) + "\n")


def _version_flags() -> str:
    major, minor, _ = KUBERNETES.version.removeprefix("v").split(".")
    told = {"gitVersion": KUBERNETES.version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in told.items())


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
        ["go", *arguments],
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
