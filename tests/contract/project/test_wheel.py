"""The wheel as a build makes it."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from support.shown import ROOT

SOURCES = ("services", "schemas", "README.md", "LICENSE", "pyproject.toml", "hatch_build.py")
ADDRESS = "https://example.org/combee"


@pytest.fixture
def wheels(tmp_path: Path) -> list[Path]:
    """Two builds, from copies at two places with other times and rights."""
    built: list[Path] = []
    for number, mode in enumerate((0o644, 0o600)):
        source = tmp_path / f"source-{number}"
        source.mkdir()
        for name in SOURCES:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
            copy(ROOT / name, source / name)
        for path in filter(Path.is_file, source.rglob("*")):
            path.chmod(mode)
            os.utime(path, (number * 1_000_000, number * 1_000_000))
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / f"out-{number}"],
            cwd=source,
            env={**os.environ, "PROJECT_URL": ADDRESS},  # noqa: TID251 - a child needs a PATH
            check=True,
            capture_output=True,
        )
        built += (tmp_path / f"out-{number}").glob("*.whl")
    return built


def test_two_builds_are_equal_and_lead_to_the_repository(wheels: list[Path]) -> None:
    first, second = (hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels)
    with zipfile.ZipFile(wheels[0]) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith("METADATA")]
        metadata = opened.read(name).decode()
        packages = {name.split("/")[0] for name in opened.namelist() if name.endswith("/__init__.py")}

    assert first == second
    assert f"Project-URL: Source, {ADDRESS}" in metadata
    assert f"({ADDRESS}/blob/v0.1.0/CONTRIBUTING.md)" in metadata
    assert "](docs/" not in metadata
    assert packages == {"combee", "combee_schemas", "combee_sim"}


def test_the_sdist_builds_the_same_wheel(wheels: list[Path], tmp_path: Path) -> None:
    build = (sys.executable, "-m", "hatchling", "build")
    env = {**os.environ, "PROJECT_URL": ADDRESS}  # noqa: TID251 - a child needs a PATH
    made = subprocess.run(
        (*build, "-t", "sdist", "-d", tmp_path / "sdist"), cwd=ROOT, env=env, check=True, capture_output=True
    )
    (archive,) = (tmp_path / "sdist").glob("combee-*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    subprocess.run((*build, "-t", "wheel", "-d", tmp_path / "again"), cwd=source, env=env, check=True)
    (again,) = (tmp_path / "again").glob("*.whl")

    assert made.returncode == 0
    assert not [name for name in source.rglob("*") if name.parts[-1] in {"tests", "experiments", "docs"}]
    with zipfile.ZipFile(wheels[0]) as first, zipfile.ZipFile(again) as second:
        assert {item.filename: item.CRC for item in second.infolist()} == {
            item.filename: item.CRC for item in first.infolist()
        }


def test_every_file_in_which_a_release_changes_the_version_has_the_same() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    steps = (ROOT / "docs" / "design" / "releasing.md").read_text("utf-8")
    stated = {
        "clients/typescript/package.json": f'"version": "{version}"',
        "deploy/helm/combee/Chart.yaml": f"version: {version}\nappVersion: {version}",
        "docker-compose.yml": f"combee:{version}",
    }

    for name, line in stated.items():
        assert f"`{name}`" in steps
        assert line in (ROOT / name).read_text("utf-8"), name
