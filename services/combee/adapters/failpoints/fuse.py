"""The points at which a process may be made to die, and what makes it die there."""

import os
from pathlib import Path
from typing import Protocol

from combee.ports import FatalError

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


class Fuse(Protocol):
    """Decides where a process dies."""

    @property
    def dead(self) -> bool:
        """Whether the process is dead (where it is only played)."""

    def check(self) -> None:
        """Raise once the process is dead."""

    def burn(self, point: str) -> None:
        """Pass a point, or die there."""


class ExitFuse:
    """Ends this process at once, without any clean-up, when a point is passed for the n-th time.

    ``marker`` is made then; a process that finds it passes every point, so that a restarted one lives.
    """

    dead = False

    def __init__(self, at: str, marker: Path | None = None) -> None:
        self._point, _, passes = at.partition("@")
        if self._point not in POINTS:
            raise FatalError(f"there is no failpoint {self._point!r}, only: {', '.join(POINTS)}")
        self._left = int(passes or 1)
        self._marker = marker
        self._armed = marker is None or not marker.exists()

    def check(self) -> None:
        """A process that is dead does not ask."""

    def burn(self, point: str) -> None:
        if not self._armed or point != self._point:
            return
        self._left -= 1
        if not self._left:
            if self._marker is not None:
                self._marker.touch()
            os._exit(EXIT_CODE)
