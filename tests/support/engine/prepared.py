"""What an engine of the tests' own needs from the network, fetched once and kept in the user's cache."""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from platformdirs import user_cache_path

from support import go_tools, kubernetes, prometheus

ROOT = Path(__file__).parents[3]
DEBIAN = "bookworm"
PYTHON = "3.11"
"""The Python of that Debian."""
PACKAGES = {
    "dockerd": "docker.io",
    "debootstrap": "debootstrap",
    "iptables": "iptables",
    "docker-registry": "docker-registry",
}
IN_THE_BASE = ("ca-certificates", "python3", "python3-venv", "python3-pip")
LOCKS = ("deploy/build.lock", "deploy/requirements.lock")
HASHED = ("--require-hashes", "--only-binary=:all:", "--python-version", PYTHON)


def cache() -> Path:
    return user_cache_path("combee") / "test-engine"


def prepare(*, cluster: bool) -> None:
    """Fetch all of it, and build an API server of Kubernetes if ``cluster``; what is there is not asked for again."""
    cache().mkdir(parents=True, exist_ok=True)
    _packages()
    base()
    wheels()
    kubernetes.fetch()
    for name in go_tools.TOOLS:
        go_tools.tool(name)
    with suppress(prometheus.NoPrometheusError):  # its tests are skipped, and say why
        prometheus.program("prometheus")
    if cluster:
        go_tools.kubernetes_programs(*go_tools.PROGRAMS, build=True)


def base() -> Path:
    """Return a small Debian with Python, as a tar file."""
    archive = cache() / f"debian-{DEBIAN}-python.tar"
    if not archive.exists():
        with TemporaryDirectory(prefix="combee-base-") as folder:
            tree, partial = Path(folder) / "tree", archive.with_suffix(".partial")
            included = f"--include={','.join(IN_THE_BASE)}"
            _run("debootstrap", "--variant=minbase", included, DEBIAN, str(tree))
            _run("tar", "-C", str(tree), "--exclude=./var/cache/apt/archives/*.deb", "-cf", str(partial), ".")
            partial.replace(archive)
    return archive


def wheels() -> Path:
    """Return a folder with the wheels that the image's locks name."""
    folder = cache() / "wheels"
    for lock in LOCKS:
        download = (sys.executable, "-m", "pip", "download", "-q", "-d", str(folder), *HASHED)
        known = ("--no-index", f"--find-links={folder}")
        asked = [*download, *known, "-r", str(ROOT / lock)]
        if subprocess.run(asked, capture_output=True, check=False).returncode:
            _run(*download, "-r", str(ROOT / lock))
    return folder


def _packages() -> None:
    missing = sorted(package for program, package in PACKAGES.items() if shutil.which(program) is None)
    if missing:
        _run("apt-get", "update", "-qq")
        _run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing)


def _run(*command: str) -> None:
    # RUNLEVEL: a package that is installed starts no service. DEBIAN_FRONTEND: and asks no question.
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}  # noqa: TID251 - a child needs a PATH
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {(done.stdout + done.stderr)[-2000:]}")
