"""A container engine of the tests' own: its own files, and namespaces that end with it.

Networks, firewall rules, mounts and processes are made in namespaces of this run, so there is nothing to restore on
the machine, however the run ends. The machine's own network is not reached from there: what is needed was fetched.
"""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

from combee.adapters.embedded_kafka import jars
from combee.adapters.embedded_kafka.data_dir import default_cache_dir
from combee.adapters.embedded_kafka.java import bundled
from support import go_tools
from support.engine import answers, prepared
from support.waiting import wait_until

STAND_INS = Path(__file__).parent / "stand_ins"
PYTHON_IMAGE, KAFKA_IMAGE = "combee-test-python", "combee-test-kafka"
START_S, STOP_S = 120.0, 60.0
WEIGHT = 10
"""How many processes all containers together count as; the kernel's default would be one."""
NAMESPACES = ("--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")


def run(command: Sequence[str]) -> int:
    """Run a command beside a new engine; return its exit code."""
    with TemporaryDirectory(prefix="combee-engine-") as folder:
        here = [sys.executable, "-m", "support.engine.own", folder, *command]
        # The first process of a namespace adopts orphans, and has to reap them.
        return subprocess.run(["unshare", *NAMESPACES, "docker-init", "--", *here], check=False).returncode


@contextmanager
def engine(folder: Path) -> Iterator[Mapping[str, str]]:
    """Start the engine and load the base images; yields the environment in which programs find it."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    config = folder / "config"
    plugin = config / "cli-plugins" / "docker-compose"
    plugin.parent.mkdir(parents=True)
    plugin.symlink_to(go_tools.tool("docker-compose"))
    address = f"unix://{folder}/docker.sock"
    env = {
        **os.environ,  # noqa: TID251 - children need a PATH
        "DOCKER_HOST": address,
        "DOCKER_CONFIG": str(config),
        "PYTHON_IMAGE": PYTHON_IMAGE,
        "KAFKA_IMAGE": KAFKA_IMAGE,
    }
    group = f"/combee-test-{os.getpid()}-{folder.name}"
    places = [f"--{place}={folder / place}" for place in ("data-root", "exec-root", "pidfile")]
    with (folder / "dockerd.log").open("wb") as log:
        daemon = subprocess.Popen(
            ["dockerd", "-H", address, *places, f"--cgroup-parent={group}"], stdout=log, stderr=log
        )
    try:
        wait_until(lambda: daemon.poll() is not None or answers(env), START_S, "an engine that answers")
        if daemon.poll() is not None:
            raise RuntimeError(f"dockerd ended: {(folder / 'dockerd.log').read_text()[-2000:]}")
        _load(folder, env)
        _weigh(group)
        with _served(prepared.wheels()) as links:
            yield {**env, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": links}
    finally:
        _docker(env, "ps -aq | xargs -r docker rm -fv")
        daemon.terminate()
        daemon.wait(STOP_S)
        _remove(group)


def _load(folder: Path, env: Mapping[str, str]) -> None:
    """Make the stand-ins for the base images; no registry is asked."""
    subprocess.run(["docker", "import", str(prepared.base()), PYTHON_IMAGE + ":bare"], env=env, check=True)
    context = folder / "context"
    shutil.copytree(STAND_INS, context)
    (context / "jars").mkdir()
    for jar in jars.pinned():
        os.link(default_cache_dir() / jar.name, context / "jars" / jar.name)
    java = bundled()
    assert java, "the tests' environment brings a Java along"
    shutil.copytree(java.parents[1], context / "java", symlinks=True)
    for image, name in ((PYTHON_IMAGE, "python"), (KAFKA_IMAGE, "kafka")):
        build = [
            "docker",
            "build",
            "-q",
            "-t",
            image,
            "-f",
            str(context / f"{name}.Dockerfile"),
            str(context),
        ]
        subprocess.run(build, env=env, check=True)


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing of each file."""


def _docker(env: Mapping[str, str], command: str) -> None:
    subprocess.run(["sh", "-c", f"docker {command}"], env=env, check=False, capture_output=True)


def _weigh(group: str) -> None:
    """Give the containers their share of a busy machine's processors."""
    for version, unit in (("cpu/{}/cpu.shares", 1024), ("{}/cpu.weight", 100)):
        file = Path("/sys/fs/cgroup") / version.format(group.removeprefix("/"))
        if file.exists():
            file.write_text(str(WEIGHT * unit))


def _remove(group: str) -> None:
    """Remove the empty control groups, which no namespace takes along."""
    for path in sorted(Path("/sys/fs/cgroup").glob(f"**{group}/**/"), reverse=True):
        path.rmdir()


def main(folder: Path, command: Sequence[str]) -> int:
    """Run a command beside an engine, within the namespaces."""
    with engine(folder) as env:
        return subprocess.run(command, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
