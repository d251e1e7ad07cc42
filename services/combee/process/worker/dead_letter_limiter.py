"""The dead-letter limiter pauses the playbooks that cause a flood, and stops a service whose model is at fault."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import structlog

from combee.adapters.ports import Clock, CombeeError, FatalError, Record, TopicPartition
from combee.core.log.dead_letters.flood import UNUSABLE, Doubt, Pause, Tally, judge

logger = structlog.get_logger()

CONTROLS = 3
"""Number of control questions that a worker asks the model before it stops."""
WINDOW_S = 60.0
"""Seconds over which dead letters are counted, and length of a pause.

Longer pauses would let a source whose records fail hold back those of others for days."""
REMEMBERED = 20_000
UNLIMITED = 2**62
MAX_PAUSED = 10_000
Place = tuple[TopicPartition, int]
Control = Callable[[], Awaitable[bool]]
"""Asks the model about a known good record; returns whether the reply is usable."""


class HeldBackError(CombeeError):
    """A record must wait because its playbook is paused."""

    def __init__(self, playbook: str) -> None:
        super().__init__(f"held back: {named(playbook)} had too many dead letters within a minute")
        self.playbook = playbook


def named(playbook: str) -> str:
    """Return the name of a paused playbook for people."""
    return "what cannot be used" if playbook == UNUSABLE else playbook


class DeadLetterLimiter:
    """The limiter of one process; it remembers the last minute's events, at most the newest 20,000."""

    def __init__(self, clock: Clock, *, service: str = "", limit: int = UNLIMITED) -> None:
        self._clock = clock
        self._service = service
        self._limit = limit
        self._events: deque[tuple[float, str, Tally]] = deque(maxlen=REMEMBERED)
        self._until: dict[str, float] = {}
        """By playbook, the end of its last pause."""
        self._unreported: list[str] = []
        self._asking = asyncio.Lock()
        self._trusted_until = float("-inf")
        """A usable reply to a control question counts for a whole window."""

    def paused(self) -> Mapping[str, float]:
        """Return the remaining seconds of each paused playbook."""
        now = self._clock.monotonic()
        # One atomic copy of the dictionary: threads that serve health read it too.
        return {name: until - now for name, until in tuple(self._until.items()) if until > now}

    def news(self) -> Sequence[str]:
        """Return newly paused playbooks, each once; a pause lasts `WINDOW_S`."""
        unreported, self._unreported = self._unreported, []
        return unreported

    def check(self, playbook: str) -> None:
        """Raise HeldBackError while a playbook is paused."""
        if self._until.get(playbook, float("-inf")) > self._clock.monotonic():
            raise HeldBackError(playbook)

    def passed(self, playbook: str, count: int = 1) -> None:
        """Count a record that was worked on successfully; ``count``: its reflections."""
        self._events.append((self._clock.monotonic(), playbook, Tally(good=count)))

    def unusable(self) -> None:
        """Count a record that is unusable without asking a model; return if it may be dead-lettered.

        Raises
        ------
        HeldBackError
            If such records are paused, possibly by this call.
        """
        self._count(UNUSABLE, 1)

    async def failed(self, playbook: str, count: int = 1, *, control: Control) -> None:
        """Count an unusable reply of a model; return if the record may be dead-lettered.

        Raises
        ------
        HeldBackError
            If the playbook is paused, possibly by this call.
        FatalError
            If the service must stop: the replies to the control questions are unusable, too.
        """
        if self._count(playbook, count) is None:
            return
        async with self._asking:  # one control serves all replies that fail meanwhile
            doubt = self._judged()
            if doubt is not None and not await _answered(control):
                raise FatalError(
                    f"{self._service} stops before it dead-letters everything: within a minute {doubt.bad}"
                    f" reflections failed because the model's replies were unusable, {doubt.good} succeeded, and the"
                    " replies to three control questions were unusable, too. Nothing is lost."
                    " Look at 'combee dlq list', fix the model, prompts or deployment, and start the service"
                    " again; 'combee dlq retry --all' sends the dead letters again. The limit is"
                    " COMBEE_DEAD_LETTERS_PER_MINUTE"
                )
            if doubt is not None:
                self._trusted_until = self._clock.monotonic() + WINDOW_S
                self._pause(*doubt.playbooks)
        self.check(playbook)

    def _count(self, playbook: str, count: int) -> Doubt | None:
        """Count a failure; return the doubt about the model that follows from it."""
        self.check(playbook)
        self._events.append((self._clock.monotonic(), playbook, Tally(failures=1, bad=count)))
        doubt = self._judged()
        self.check(playbook)
        return doubt

    def _judged(self) -> Doubt | None:
        """Pause the playbooks that cause a flood; return the doubt about the model, if there is one."""
        match judge(self._tallies(), self._limit, self.paused()):
            case Pause(playbook=worst):
                self._pause(worst)
            case Doubt() as doubt if self._clock.monotonic() >= self._trusted_until:
                return doubt
            case Doubt(playbooks=floods):
                self._pause(*floods)
        return None

    def _tallies(self) -> dict[str, Tally]:
        since = self._clock.monotonic() - WINDOW_S
        while self._events and self._events[0][0] <= since:
            self._events.popleft()
        tallies: dict[str, Tally] = {}
        for _, name, tally in self._events:
            tallies[name] = tallies.get(name, Tally()) + tally
        return tallies

    def _pause(self, *playbooks: str) -> None:
        for playbook in playbooks:
            self._pause_one(playbook)

    def _pause_one(self, playbook: str) -> None:
        now = self._clock.monotonic()
        self._until = {name: until for name, until in self._until.items() if until > now}
        self._until[playbook] = now + WINDOW_S
        kept = [event for event in self._events if event[1] != playbook]
        self._events = deque(kept, maxlen=REMEMBERED)
        self._unreported.append(playbook)
        logger.error("paused", service=self._service, playbook=named(playbook), seconds=WINDOW_S)


class PausedRecords:
    """The open records of paused playbooks: their places alone, because the log has the rest.

    They are kept by playbook, oldest first, at most ``most`` in all.
    """

    def __init__(self, most: int = MAX_PAUSED) -> None:
        self._most = most
        self._places: dict[str, dict[Place, None]] = {}

    def __len__(self) -> int:
        """Return how many records are paused."""
        return sum(map(len, self._places.values()))

    def add(self, playbook: str, record: Record) -> bool:
        """Pause a record; False if there is no room."""
        if len(self) >= self._most:
            return False
        self._places.setdefault(playbook, {})[record.source, record.offset] = None
        return True

    def on(self, sources: Collection[TopicPartition]) -> int:
        """Return how many records of these partitions are paused."""
        return sum(source in sources for places in self._places.values() for source, _ in places)

    def due(self, paused: Collection[str], room: int) -> dict[TopicPartition, list[int]]:
        """Return up to ``room`` places of playbooks that are no longer paused; they stay until forgotten."""
        places: dict[TopicPartition, list[int]] = {}
        free = [place for name, waiting in self._places.items() if name not in paused for place in waiting]
        for source, offset in free[: max(0, room)]:
            places.setdefault(source, []).append(offset)
        return places

    def forget(self, source: TopicPartition, offsets: Collection[int]) -> None:
        """Forget records that are worked on again."""
        forgotten = {(source, offset) for offset in offsets}
        self._keep(lambda place: place not in forgotten)

    def keep(self, sources: Collection[TopicPartition]) -> None:
        """Forget records of other partitions: another worker has them now."""
        self._keep(lambda place: place[0] in sources)

    def _keep(self, wanted: Callable[[Place], bool]) -> None:
        kept = {n: {p: None for p in places if wanted(p)} for n, places in self._places.items()}
        self._places = {name: places for name, places in kept.items() if places}


async def _answered(control: Control) -> bool:
    """Return whether one of several control questions gets a usable reply: a sound model may fail once."""
    for _ in range(CONTROLS):
        if await control():
            return True
    return False
