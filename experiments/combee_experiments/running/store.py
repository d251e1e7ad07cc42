"""Finished cells on disk: one JSON line each, appended at once, so that nothing is measured twice."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from combee_experiments.running.cells import Numbers, key


class Store:
    """The cells of one experiment; lines of other models, code or options stay and are not found."""

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self.path = path
        if fresh:
            path.unlink(missing_ok=True)
        self._known = dict(_cells(path))

    def find(self, identity: Mapping[str, object]) -> Numbers | None:
        """Return what was measured under exactly this identity."""
        return self._known.get(key(identity))

    def add(self, identity: Mapping[str, object], numbers: Numbers) -> None:
        """Write one finished cell."""
        append_lines(self.path, [json.dumps({**identity, "numbers": numbers}, ensure_ascii=False)])
        self._known[key(identity)] = numbers


def _cells(path: Path) -> list[tuple[str, Numbers]]:
    """Return the cells of a file by key; a torn line is as if it had not been measured."""
    found = []
    for line in read_lines(path):
        try:
            identity = json.loads(line)
            numbers = identity.pop("numbers")
        except (ValueError, AttributeError, KeyError):
            continue
        found.append((key(identity), numbers))
    return found


def read_lines(path: Path) -> list[str]:
    """Return a file's lines, the last one perhaps torn; none where there is no file."""
    return path.read_text(encoding="utf-8").split("\n") if path.exists() else []


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines at once, each a line of its own whatever stands before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torn = path.exists() and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" * torn + "".join(f"{line}\n" for line in lines))
