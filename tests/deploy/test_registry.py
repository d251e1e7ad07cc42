"""Images from a registry: the base images pinned by their digests, and the services' image pulled.

The registry is one of this test, on loopback; what is pushed to it are stand-ins.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from support.compose import Deployment, configure
from support.waiting import wait_until

pytestmark = pytest.mark.timeout(900)
PROGRAM = "docker-registry"
ADDRESS = "127.0.0.1:5055"
BASES = {"PYTHON_IMAGE": f"{ADDRESS}/python:3.11-slim", "KAFKA_IMAGE": f"{ADDRESS}/kafka:4.3.1"}
CONFIG = f"""\
version: 0.1
storage: {{filesystem: {{rootdirectory: %s}}}}
http: {{addr: "{ADDRESS}"}}
"""


@pytest.fixture(scope="module")
def registry(built: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Yield a deployment whose base images come from a registry that has them."""
    program = shutil.which(PROGRAM)
    if program is None:
        pytest.skip(f"there is no {PROGRAM} here: apt-get install {PROGRAM}")
    folder = tmp_path_factory.mktemp("registry")
    (folder / "config.yml").write_text(CONFIG % (folder / "data"))
    with (folder / "log").open("wb") as log:
        serving = subprocess.Popen([program, "serve", str(folder / "config.yml")], stdout=log, stderr=log)
    try:
        wait_until(_answers, 60, f"a registry ({(folder / 'log').read_text()})")
        for name, image in BASES.items():
            built.docker("tag", built.env[name], image)
            built.docker("push", "-q", image)
        yield built
    finally:
        for image in BASES.values():
            subprocess.run(
                ["docker", "image", "rm", "-f", image], env=built.env, capture_output=True, check=False
            )
        serving.terminate()
        serving.wait(30)


def _answers() -> bool:
    try:
        return httpx.get(f"http://{ADDRESS}/v2/").is_success
    except httpx.TransportError:
        return False


def _pin(project: Deployment, *images: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "deploy/pin.py", *images]
    return subprocess.run(
        command, cwd=project.folder, env=project.env, capture_output=True, text=True, check=False
    )


def _named(folder: Path) -> dict[str, str]:
    lines = (folder / ".env").read_text().splitlines()
    return dict(line.partition("=")[::2] for line in lines)


def _digest(image: str) -> str:
    """Return what the registry itself says."""
    name, _, tag = image.removeprefix(f"{ADDRESS}/").rpartition(":")
    accepted = "application/vnd.docker.distribution.manifest.v2+json"
    answer = httpx.head(f"http://{ADDRESS}/v2/{name}/manifests/{tag}", headers={"Accept": accepted})
    return answer.headers["Docker-Content-Digest"]


def test_the_digests_of_base_images_are_looked_up_and_pinned(registry: Deployment) -> None:
    configure(registry.folder, {"COMBEE_MODEL": "simulated"})
    before = _named(registry.folder)
    done = _pin(registry, *(f"{name}={image}" for name, image in BASES.items()))
    pinned = {name: f"{image}@{_digest(image)}" for name, image in BASES.items()}

    assert (done.returncode, _named(registry.folder)) == (0, before | pinned), done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(f"{name}={image}" for name, image in pinned.items())
    # Compose takes them, the engine has them by these names, and pinned again they stay.
    plain = {name: value for name, value in registry.env.items() if name not in BASES}
    config = json.loads(replace(registry, env=plain).compose("config", "--format", "json"))["services"]
    assert config["kafka"]["image"] == pinned["KAFKA_IMAGE"]
    assert config["check"]["build"]["args"]["PYTHON_IMAGE"] == pinned["PYTHON_IMAGE"]
    said = registry.docker("run", "--rm", pinned["PYTHON_IMAGE"], "python", "--version")
    assert said.startswith("Python 3.11")
    assert _pin(registry).returncode == 0
    assert _named(registry.folder) == before | pinned


def test_a_newer_image_behind_the_tag_changes_the_pin_only_when_asked(registry: Deployment) -> None:
    configure(registry.folder, {})
    _pin(registry, *(f"{name}={image}" for name, image in BASES.items()))
    before, image = _named(registry.folder), BASES["KAFKA_IMAGE"]
    newer = subprocess.run(
        ["docker", "build", "-q", "-t", image, "-"],
        input=f"FROM {registry.env['KAFKA_IMAGE']}\nLABEL newer=yes\n",
        env=registry.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert newer.returncode == 0, newer.stderr
    registry.docker("push", "-q", image)
    assert _digest(image) not in before["KAFKA_IMAGE"]

    assert _pin(registry).returncode == 0
    assert _named(registry.folder) == before | {"KAFKA_IMAGE": f"{image}@{_digest(image)}"}


def test_what_no_registry_has_is_not_pinned_and_nothing_is_written(registry: Deployment) -> None:
    configure(registry.folder, {})
    before = _named(registry.folder)
    done = _pin(registry, f"PYTHON_IMAGE={ADDRESS}/python:missing", f"KAFKA_IMAGE={BASES['KAFKA_IMAGE']}")

    assert (done.returncode, _named(registry.folder)) == (1, before)
    assert "python:missing" in done.stderr
    assert "nothing was written" in done.stderr


def test_the_services_image_can_be_pulled_instead_of_built(registry: Deployment) -> None:
    configure(registry.folder, {})
    image = f"{ADDRESS}/combee:0.1.0"
    registry.docker("tag", registry.env["COMBEE_IMAGE"], image)
    registry.docker("push", "-q", image)
    registry.docker("image", "rm", "-f", image)
    project = replace(registry, env={**registry.env, "COMBEE_IMAGE": image, **BASES})
    try:
        project.compose("pull", "-q")
        assert registry.docker("run", "--rm", image, "--version").startswith("combee ")
    finally:
        registry.docker("image", "rm", "-f", image)
