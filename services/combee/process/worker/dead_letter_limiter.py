"""The dead-letter limiter: it pauses what a flood is made of, and stops a service whose model is at fault."""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import structlog

from combee.adapters.ports import Clock, CombeeError, FatalError, Record, TopicPartition
from combee.core.log.dead_letters.flood import UNUSABLE, Doubt, Pause, Tally, judge

logger = structlog.get_logger()

CONTROLS = 3
"""Questions of its own that a worker asks before it stops."""
WINDOW_S = 60.0
"""Over this the limit counts; so long a first pause lasts."""
LONGEST_S = 3600.0
"""Each further pause of a playbook of which nothing has come since is twice as long, up to this; so long after its
last pause a playbook is forgotten."""
REMEMBERED = 20_000
UNLIMITED = 2**62
MOST_PAUSED = 10_000
Place = tuple[TopicPartition, int]
Control = Callable[[], Awaitable[bool]]
"""Asks the model about a record of our own; returns whether the reply is of use."""


class HeldBackError(CombeeError):
    """A record must wait because its playbook is paused."""

    def __init__(self, playbook: str) -> None:
        super().__init__(f"held back: {named(playbook)} had too many dead letters within a minute")
        self.playbook = playbook


def named(playbook: str) -> str:
    """Return a paused playbook for people."""
    return "what cannot be used" if playbook == UNUSABLE else playbook


class DeadLetterLimiter:
    """One process's; events of the last minute, the newest 20,000 of them."""

    def __init__(self, clock: Clock, *, service: str = "", limit: int = UNLIMITED) -> None:
        self._clock = clock
        self._service = service
        self._limit = limit
        self._events: deque[tuple[float, str, Tally]] = deque(maxlen=REMEMBERED)
        self._until: dict[str, float] = {}
        """By playbook, the end of its last pause."""
        self._pauses: Counter[str] = Counter()
        self._unreported: list[tuple[str, float]] = []
        self._asking = asyncio.Lock()
        self._trusted_until = float("-inf")
        """A control that was answered well holds for a window."""

    def paused(self) -> Mapping[str, float]:
        """Return the paused playbooks, and for how many seconds still."""
        now = self._clock.monotonic()
        # One look at the dictionary: threads that serve health read it too.
        return {name: until - now for name, until in tuple(self._until.items()) if until > now}

    def news(self) -> Sequence[tuple[str, float]]:
        """Return pauses that were not reported yet: playbook and seconds."""
        unreported, self._unreported = self._unreported, []
        return unreported

    def check(self, playbook: str) -> None:
        """Raise HeldBackError while a playbook is paused."""
        if self._until.get(playbook, float("-inf")) > self._clock.monotonic():
            raise HeldBackError(playbook)

    def passed(self, playbook: str, count: int = 1) -> None:
        """A record came to something; it stands for so many reflections."""
        self._pauses.pop(playbook, None)
        self._events.append((self._clock.monotonic(), playbook, Tally(good=count)))

    def unusable(self) -> None:
        """A record is of no use, and no model was asked about it; returns if it may be dead-lettered.

        Raises
        ------
        HeldBackError
            If such records wait, from now on perhaps.
        """
        self._count(UNUSABLE, 1)

    async def failed(self, playbook: str, count: int = 1, *, control: Control) -> None:
        """A model's reply was of no use; returns if what was asked about may be dead-lettered.

        Raises
        ------
        HeldBackError
            If the playbook is paused, from now on perhaps.
        FatalError
            If the service must stop: the reply to the control is of no use either.
        """
        if self._count(playbook, count) is None:
            return
        async with self._asking:  # one control for all replies that fail meanwhile
            doubt = self._judged()
            if doubt is not None and not await _answered(control):
                raise FatalError(
                    f"{self._service} stops before it dead-letters everything: within a minute {doubt.bad}"
                    f" reflections came to nothing because the model's replies were of no use, {doubt.good} to"
                    " something, and three questions of its own were answered no better. Nothing is lost."
                    " Look at 'combee dlq list', mend model, prompts or deployment and start it again;"
                    " 'combee dlq retry --all' gives the dead letters another chance."
                    " COMBEE_DEAD_LETTERS_PER_MINUTE is the limit"
                )
            if doubt is not None:
                self._trusted_until = self._clock.monotonic() + WINDOW_S
                self._pause(*doubt.playbooks)
        self.check(playbook)

    def _count(self, playbook: str, count: int) -> Doubt | None:
        """Note a failure; return the doubt about the model that it leads to."""
        self.check(playbook)
        self._events.append((self._clock.monotonic(), playbook, Tally(failures=1, bad=count)))
        doubt = self._judged()
        self.check(playbook)
        return doubt

    def _judged(self) -> Doubt | None:
        """Pause what a flood is made of; return the doubt about the model, if there is one."""
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
        self._until = {name: until for name, until in self._until.items() if until + LONGEST_S > now}
        self._pauses = Counter({name: self._pauses[name] for name in self._until})
        seconds = min(LONGEST_S, WINDOW_S * 2 ** min(self._pauses[playbook], 10))
        if playbook != UNUSABLE:  # it costs no call of a model: a longer pause would spare nothing
            self._pauses[playbook] += 1
        self._until[playbook] = now + seconds
        kept = [event for event in self._events if event[1] != playbook]
        self._events = deque(kept, maxlen=REMEMBERED)
        self._unreported.append((playbook, seconds))
        logger.error("paused", service=self._service, playbook=named(playbook), seconds=seconds)


class PausedRecords:
    """The open records of paused playbooks: only where they stand is kept, the log has the rest.

    By playbook, oldest first, at most so many in all.
    """

    def __init__(self, most: int = MOST_PAUSED) -> None:
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
        """Return up to ``room`` places of playbooks that are paused no longer; they stay until forgotten."""
        places: dict[TopicPartition, list[int]] = {}
        free = [place for name, waiting in self._places.items() if name not in paused for place in waiting]
        for source, offset in free[: max(0, room)]:
            places.setdefault(source, []).append(offset)
        return places

    def forget(self, source: TopicPartition, offsets: Collection[int]) -> None:
        """Let go of records that are worked on again."""
        forgotten = {(source, offset) for offset in offsets}
        self._keep(lambda place: place not in forgotten)

    def keep(self, sources: Collection[TopicPartition]) -> None:
        """Let go of everything on other partitions: it is another worker's."""
        self._keep(lambda place: place[0] in sources)

    def _keep(self, wanted: Callable[[Place], bool]) -> None:
        kept = {n: {p: None for p in places if wanted(p)} for n, places in self._places.items()}
        self._places = {name: places for name, places in kept.items() if places}


async def _answered(control: Control) -> bool:
    """Return whether one of several questions of our own is answered: a model that is sound fails at times."""
    for _ in range(CONTROLS):
        if await control():
            return True
    return False
