"""The wheel as a build makes it."""

import hashlib
import os
import shutil
import subprocess
import sys
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
