"""A process that is only played, in the tests' own event loop, dies at the points where a real one would exit."""

from combee.adapters.failpoints import MortalLog

__all__ = ["CrashError", "Fuse", "MortalLog"]


class CrashError(Exception):
    """The process is dead: whatever it tries from now on fails and has no effect."""


class Fuse:
    """Kills its process at the ``at``-th point it passes (from 1), or at the first one called ``point``."""

    def __init__(self, at: int | None = None, *, point: str | None = None) -> None:
        self._at = at
        self._point = point
        self.dead = False
        self.points: list[str] = []

    def check(self) -> None:
        """Let nothing pass once the process is dead."""
        if self.dead:
            raise CrashError(self.points[-1])

    def burn(self, point: str) -> None:
        """Pass a point, or die there."""
        self.check()
        self.points.append(point)
        self.dead = len(self.points) == self._at or point == self._point
        self.check()
