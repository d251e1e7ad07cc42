"""A deployment of docker-compose.yml, driven as its README says: by the ``docker`` command line."""

import json
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from support.shown import ROOT
from support.waiting import wait_until

FILES = (
    *("docker-compose.yml", ".dockerignore", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE"),
    *("deploy", "examples", "schemas", "services"),
)
COMMAND_S, HEALTHY_S, LEARNED_S = 900.0, 600.0, 600.0
ROLES = ("reflect", "shuffle", "scan", "publish", "control", "gateway")
KEY = "a-key-that-only-this-test-knows"
KEYS = f"""\
[[keys]]
name = "test"
key = "{KEY}"
scopes = ["reflections:write", "playbooks:read", "playbooks:admin"]
"""
GATEWAY = "http://127.0.0.1:8750"
SIMULATED = "deploy/simulated.yml"
# With an engine of the tests' own: packages come from the folder of wheels that was fetched before.
OFFLINE = """\
services:
  check:
    build:
      network: host
      args: [PIP_NO_INDEX, PIP_FIND_LINKS]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container of a service, as ``docker compose ps`` shows it."""

    id: str
    service: str
    image: str
    health: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One Compose project on a copy of what the README's commands read."""

    folder: Path
    env: Mapping[str, str]
    files: tuple[str, ...]
    profiles: tuple[str, ...] = ()
    """Each has the name of the one service that it adds."""
    key: str = KEY
    """Of the gateway."""

    def compose(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        """Run ``docker compose``; return what it printed."""
        files = [word for file in self.files for word in ("-f", file)]
        profiles = [word for profile in self.profiles for word in ("--profile", profile)]
        done = subprocess.run(
            ["docker", "compose", *files, *profiles, *arguments],
            cwd=self.folder,
            env=self.env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"compose {' '.join(arguments)}: {done.stdout[-1000:]}{done.stderr[-3000:]}")
        return done.stdout + ("" if check else done.stderr)

    def docker(self, *arguments: str) -> str:
        """Run ``docker``; return what it printed."""
        command = ["docker", *arguments]
        return subprocess.run(
            command, env=self.env, capture_output=True, text=True, timeout=COMMAND_S, check=True
        ).stdout.strip()

    def containers(self, service: str = "") -> list[Container]:
        """Return the containers, those that ended too."""
        lines = self.compose("ps", "-a", "--format", "json").splitlines()
        return [
            Container(
                id=shown["ID"],
                service=shown["Service"],
                image=shown["Image"],
                health=shown["Health"],
                state=shown["State"],
            )
            for shown in map(json.loads, lines)
            if not service or shown["Service"] == service
        ]

    def wait_healthy(self, replicas: Mapping[str, int] | None = None) -> None:
        """Wait until every service is healthy; fail with its log where one is not."""
        wanted = dict.fromkeys((*ROLES, *self.profiles), 1) | dict(replicas or {})

        def healthy() -> bool:
            running = [one.service for one in self.containers() if one.health == "healthy"]
            return all(running.count(role) == count for role, count in wanted.items())

        try:
            wait_until(healthy, HEALTHY_S, "a healthy deployment")
        except AssertionError as error:
            logs = self.compose("logs", "--no-color", "--tail", "15")
            raise AssertionError(f"{error}: {self.containers()}\n{logs[-6000:]}") from error

    def publish(self, kind: str, lines: Sequence[Mapping[str, Any]], playbook: str) -> None:
        """Publish traces or reflections through the gateway."""
        answer = self.ask("POST", f"/v1/{kind}", json=[{**line, "playbook": playbook} for line in lines])
        assert answer.is_success, answer.text

    def wait_applied(self, count: int) -> None:
        """Wait until so many reflections are applied, by the ledger of the gateway."""
        wait_until(lambda: int(self.ledger()["applied"]) >= count, LEARNED_S, f"{count} applied reflections")

    def ledger(self) -> dict[str, Any]:
        """Return the ledger."""
        try:
            answer = self.ask("GET", "/v1/ledger", timeout=60.0)
        except httpx.TransportError as error:
            return {"applied": -1, "failed": str(error)}
        ledger: dict[str, Any] = (
            answer.json() if answer.is_success else {"applied": -1, "failed": answer.text}
        )
        return ledger

    def ask(self, method: str, path: str, **content: Any) -> httpx.Response:
        """Ask the gateway, with its key."""
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.request(method, GATEWAY + path, headers=headers, **{"timeout": 20.0, **content})


def build(project: Deployment) -> None:
    """Build the image as Compose does; with wheels that were fetched before, no network is needed."""
    files = []
    if "PIP_NO_INDEX" in project.env:
        (project.folder / "offline.yml").write_text(OFFLINE)
        files = ["-f", "offline.yml"]
    project.compose(*files, "build")


def context(folder: Path) -> None:
    """Copy what the README's commands read; a user's ``.env`` is no part of it."""
    folder.mkdir()
    (folder / ".env").touch()
    for name in FILES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)


def configure(folder: Path, settings: Mapping[str, str], model_key: str = "") -> None:
    """Write ``.env`` and the files that it names."""
    secrets = {"COMBEE_GATEWAY_KEYS_FILE": KEYS, "COMBEE_API_KEY_FILE": model_key}
    lines = {"COMBEE_MAX_WAIT_S": "3", **settings}
    (folder / "secrets").mkdir(mode=0o700, exist_ok=True)
    for name, text in secrets.items():
        if text:
            file = folder / "secrets" / name
            file.unlink(missing_ok=True)
            file.write_text(text)
            file.chmod(0o444)
            lines[name] = f"./secrets/{name}"
    (folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))


@contextmanager
def deployment(
    folder: Path,
    env: Mapping[str, str],
    *files: str,
    settings: Mapping[str, str],
    profiles: tuple[str, ...] = (),
    model_key: str = "",
) -> Iterator[Deployment]:
    """Yield a deployment that is up and healthy; take all of it down at the end."""
    configure(folder, settings, model_key)
    project = Deployment(folder=folder, env=env, files=("docker-compose.yml", *files), profiles=profiles)
    try:
        project.compose("up", "-d", "--no-build")
        project.wait_healthy()
        if SIMULATED in files:  # there one is made in a container
            made = project.compose("exec", "-T", "gateway", "cat", "/keys/gateway-keys.toml")
            project = replace(project, key=tomllib.loads(made)["keys"][0]["key"])
        yield project
    finally:
        project.compose("down", "-v", "-t", "5", "--remove-orphans", check=False)
