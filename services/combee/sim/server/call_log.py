"""The stand-in's log of calls: one JSON line each, flushed, so that tests can count calls from outside."""

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO


class CallLog:
    """Appends lines to a file, or nowhere when there is no path."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a", encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def write(self, **fields: Any) -> None:
        """Append one line."""
        if self._file is not None:
            self._file.write(json.dumps(fields) + "\n")
            self._file.flush()
