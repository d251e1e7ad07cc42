"""The fingerprint of the code that a number depends on: other code, other cells."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import combee
import combee_experiments
import combee_schemas
from combee_schemas.digests import digest

SHOWS = re.compile(
    r"(cli|adapters)/.*|(\w+/)?\w*(report|front)\.py|(running/(plot|results|store|lines)|data/paper|catalogue)\.py"
)
"""Files that show numbers, or move them between machines, decide none."""


@cache
def fingerprint() -> str:
    """Return a short hash of every source file that decides numbers."""
    return digest(
        "code", *(text for path in sorted(_sources()) for text in (path.name, path.read_text("utf-8")))
    ).hex()


def _sources() -> Iterator[Path]:
    for package in (combee, combee_experiments, combee_schemas):
        root = Path(next(iter(package.__path__)))
        for path in root.rglob("*.py"):
            if not SHOWS.fullmatch(path.relative_to(root).as_posix()):
                yield path
