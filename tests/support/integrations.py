"""Runs the tests of each integration in a new environment that holds ``combee[NAME]`` and pytest, and nothing else.

    python -m support.integrations [--results FOLDER] [NAME …]

Combee itself (broker, services, stand-in model) runs from the environment of the checkout: see
``tests/integrations/conftest.py``.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests" / "integrations"
EXAMPLES = ROOT / "examples"
TABLE = "integrations.csv"
NO_EXTRA = {"typescript"}
"""Tests of what is not Python; they have a lane of their own."""
TEST_TOOLS = ("pytest>=8.3", "pytest-asyncio>=1", "pytest-timeout>=2.4")
PROBE = """
import sys
from importlib.metadata import distribution, requires
from packaging.requirements import Requirement
extra = sys.argv[1]
named = [Requirement(line) for line in requires("combee") or []]
ours = {need.name for need in named if not need.marker or need.marker.evaluate({"extra": "all"})}
added = {need.name for need in named if need.marker and need.marker.evaluate({"extra": extra})}
for name in sorted(added - ours - {"combee"}):
    print(name, distribution(name).version)
"""
"""Prints the libraries that an extra adds to those of Combee itself, with the versions that are installed."""


def main() -> int:
    """Run what was asked for, all by default; return how many failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folders = {path.name for path in TESTS.iterdir() if path.is_dir() and any(path.glob("test_*.py"))}
    known = sorted(folders - NO_EXTRA)
    parser.add_argument("--results", type=Path, help="write the table of versions into this folder")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    asked = parser.parse_args()
    if unknown := set(asked.names) - set(known):
        parser.error(f"there is no integration {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    rows: list[Mapping[str, str]] = []
    failed = []
    with tempfile.TemporaryDirectory(prefix="combee-integrations-") as folder:
        wheel = built(Path(folder))
        for name in asked.names or known:
            say(f"=== {name}: a new environment with combee[{name}]")
            python = environment(Path(folder) / name, wheel, name)
            if tested(python, name):
                rows += [{"integration": name, **row} for row in versions(python, name)]
            else:
                failed.append(name)
    if asked.results and not failed:
        written(asked.results / TABLE, rows)
    say(f"failed: {', '.join(failed)}" if failed else "all passed")
    return len(failed)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def built(folder: Path) -> Path:
    """Build the wheel that users would install."""
    subprocess.run(
        (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)), cwd=ROOT, check=True
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def environment(folder: Path, wheel: Path, name: str, tools: Sequence[str] = TEST_TOOLS) -> Path:
    """Make a virtual environment; return its Python. With the pip that made the checkout's, and its settings."""
    python = folder / "bin" / "python"
    subprocess.run((sys.executable, "-m", "venv", "--without-pip", str(folder)), check=True)
    install = (sys.executable, "-m", "pip", "--python", str(python), "install", "-q")
    # Only wheels: nothing that is downloaded gets to run while it is installed.
    subprocess.run(
        (*install, "--only-binary", ":all:", f"combee[{name}] @ {wheel.as_uri()}", *tools), check=True
    )
    return python


def tested(python: Path, name: str) -> bool:
    """Run an integration's tests; the command line of the checkout is in COMBEE_TEST_COMMAND."""
    inherited = os.environ  # noqa: TID251 - a child needs a PATH
    arguments = (
        "-c",
        str(TESTS / "pytest.ini"),
        "--rootdir",
        str(ROOT),
        "--confcutdir",
        str(TESTS),
        str(TESTS / name),
    )
    command = str(Path(sys.executable).parent / "combee")
    ended = subprocess.run(
        (str(python), "-m", "pytest", *arguments),
        env={**inherited, "COMBEE_TEST_COMMAND": command},
        check=False,
    )
    return ended.returncode == 0


def versions(python: Path, name: str) -> list[Mapping[str, str]]:
    """Return the versions of what an extra adds."""
    probe = (str(python), "-c", PROBE, name)
    output = subprocess.run(probe, capture_output=True, text=True, check=True).stdout
    python_version = ".".join(map(str, sys.version_info[:2]))
    # An extra that is made of others may name a library twice.
    pairs = (line.split() for line in dict.fromkeys(output.splitlines()))
    return [{"library": library, "version": version, "python": python_version} for library, version in pairs]


def written(path: Path, rows: list[Mapping[str, str]]) -> None:
    """Write the table; rows of integrations that were not run now stay."""
    before = list(csv.DictReader(path.open("r", encoding="utf-8"))) if path.exists() else []
    new = {row["integration"] for row in rows}
    kept = [*(row for row in before if row["integration"] not in new), *rows]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ("integration", "library", "version", "python"), lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(kept, key=lambda row: (row["integration"], row["library"])))


if __name__ == "__main__":
    sys.exit(main())
