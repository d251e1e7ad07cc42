"""Whether this process is alive, and whether it is ready: what the health endpoints answer."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from combee.ports import Clock
from combee.worker.dead_letter_limiter import named

BEAT_S = 0.5
STUCK_S = 10.0
"""A heartbeat that is older: the event loop does not turn, and Kafka's heartbeats ride on it."""
IDLE_S = 30.0
"""A work loop that has not come round for so long is waiting for something."""
MINUTE_S = 60.0
SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One thing that must hold, and how it is."""

    name: str
    good: bool
    says: str
    waits: bool = False
    """Whether the process is ready and waits all the same for something that heals by itself."""

    @property
    def mark(self) -> str:
        """How its line in a health page begins."""
        return "RED" if not self.good else "WAIT" if self.waits else "ok "


class Current(Protocol):
    """A view, as far as health is concerned."""

    @property
    def is_current(self) -> bool:
        """Whether it holds everything that its topic does."""


class Health:
    """What a process knows of itself. Written by the event loop, read by the server's threads."""

    def __init__(
        self,
        clock: Clock,
        *,
        dead_letters_per_minute: int,
        away: Callable[[], str | None] = lambda: None,
        refusal: Callable[[], str | None] = lambda: None,
        trouble: Callable[[], str | None] = lambda: None,
        paused: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._clock = clock
        self._beat_at = clock.monotonic()
        self._turned_at: float | None = None
        self._buried: deque[float] = deque(maxlen=dead_letters_per_minute)
        self.views: Sequence[Current] = ()
        self.away = away
        """Why the log cannot be used now, if so."""
        self._refusal = refusal
        self._trouble = trouble
        self._paused = paused

    async def beat(self) -> None:
        """Show for ever that the event loop turns."""
        while True:
            self._beat_at = self._clock.monotonic()
            await asyncio.sleep(BEAT_S)

    def turned(self) -> None:
        """The work loop came round, with partitions to work on."""
        self._turned_at = self._clock.monotonic()

    def buried(self) -> None:
        """A dead letter was written."""
        self._buried.append(self._clock.monotonic())

    def alive(self) -> Condition:
        """Return whether the event loop turns."""
        since_s = self._clock.monotonic() - self._beat_at
        says = (
            "the event loop turns" if since_s < STUCK_S else f"no turn of the event loop for {since_s:.0f} s"
        )
        return Condition(name="alive", good=since_s < STUCK_S, says=says)

    def conditions(self) -> tuple[Condition, ...]:
        """Return everything that must hold for this process to do its work."""
        return (
            self.alive(),
            self._broker(),
            self._assigned(),
            self._current(),
            self._model(),
            self._dead_letters(),
            self._flood(),
        )

    def _broker(self) -> Condition:
        away = self.away()
        return Condition(name="broker", good=away is None, says=away or "the broker answers")

    def _assigned(self) -> Condition:
        turned = self._turned_at
        since_s = 0.0 if turned is None else self._clock.monotonic() - turned
        if turned is None:
            says = "no partition has been assigned: it is joining, or there are more replicas than partitions"
        elif since_s < IDLE_S:
            says = "partitions are assigned and worked on"
        else:
            says = f"no turn with partitions for {since_s:.0f} s: the broker is away, or it restores itself"
        return Condition(name="assigned", good=turned is not None and since_s < IDLE_S, says=says)

    def _current(self) -> Condition:
        behind = sum(not view.is_current for view in self.views)
        says = f"{behind} of {len(self.views)} views are not current" if behind else "all views are current"
        return Condition(name="views", good=not behind, says=says)

    def _model(self) -> Condition:
        refusal, trouble = self._refusal(), self._trouble()
        says = refusal or trouble or "the model does not refuse"
        return Condition(name="model", good=refusal is None, says=says, waits=trouble is not None)

    def _dead_letters(self) -> Condition:
        limit = self._buried.maxlen or 0
        # Only whole and single looks at the deque: the event loop may append meanwhile.
        full = len(self._buried) == limit and self._clock.monotonic() - self._buried[0] < MINUTE_S
        says = f"{limit} dead letters or more within a minute" if full else "few dead letters, or none"
        return Condition(name="dead_letters", good=not full, says=says)

    def _flood(self) -> Condition:
        left = [f"{named(name)} ({seconds:.0f} s left)" for name, seconds in sorted(self._paused().items())]
        says = (
            f"too many dead letters, held back: {', '.join(left[:SHOWN])}" if left else "nothing is held back"
        )
        more = f" and {len(left) - SHOWN} more" if len(left) > SHOWN else ""
        return Condition(name="flood", good=not left, says=says + more)
