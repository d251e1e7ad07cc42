"""Files of lines that grow and survive a kill in mid-line."""

from collections.abc import Iterable
from pathlib import Path


def read(path: Path) -> list[str]:
    """Return a file's lines, the last one perhaps torn; none where there is no file."""
    return path.read_text(encoding="utf-8").split("\n") if path.exists() else []


def append(path: Path, lines: Iterable[str]) -> None:
    """Write lines at once, each a line of its own whatever stands before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torn = path.exists() and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" * torn + "".join(f"{line}\n" for line in lines))
