"""Failpoints: named gaps around a service's writes, and what makes its process end there."""

import os
from pathlib import Path
from typing import Protocol

POINTS = (
    "before ask",
    "after ask",
    "before produce",
    "after produce",
    "before transaction",
    "sent in transaction",
    "offsets in transaction",
    "before commit",
    "after commit",
    "before offset commit",
    "after offset commit",
)
"""Every gap between a model's answer and the commit, and around each transaction, in that order."""

EXIT_CODE = 137
"""As after SIGKILL."""


class Failpoint(Protocol):
    """Decides at which point a process dies."""

    @property
    def dead(self) -> bool:
        """Whether the process is dead, where its death is simulated."""

    def check(self) -> None:
        """Raise once the process is dead."""

    def reach(self, point: str) -> None:
        """Pass a point, or die there."""


class ExitFailpoint:
    """Exits this process without any clean-up when it passes a point for the n-th time, as in ``after ask@3``.

    ``marker`` is made then; a process that finds it passes every point, so that a restarted one lives.
    """

    dead = False

    def __init__(self, at: str, marker: Path) -> None:
        self._point, _, passes = at.partition("@")
        if self._point not in POINTS:
            raise ValueError(f"there is no failpoint {self._point!r}, only: {', '.join(POINTS)}")
        self._left = int(passes or 1)
        self._marker = marker
        self._armed = not marker.exists()

    def check(self) -> None:
        """Nothing to do: a real process that is dead does not ask."""

    def reach(self, point: str) -> None:
        if not self._armed or point != self._point:
            return
        self._left -= 1
        if not self._left:
            self._marker.touch()
            os._exit(EXIT_CODE)


class CrashError(Exception):
    """The process is dead: whatever it tries from now on fails and has no effect."""


class CrashFailpoint:
    """Simulates the death of a process in the tests' own event loop.

    It dies at the ``at``-th point it passes (from 1), or at the first one called ``point``.
    """

    def __init__(self, at: int | None = None, *, point: str | None = None) -> None:
        self._at = at
        self._point = point
        self.dead = False
        self.points: list[str] = []

    def check(self) -> None:
        if self.dead:
            raise CrashError(self.points[-1])

    def reach(self, point: str) -> None:
        self.check()
        self.points.append(point)
        self.dead = len(self.points) == self._at or point == self._point
        self.check()
