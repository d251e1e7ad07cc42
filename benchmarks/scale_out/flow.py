"""A queueing simulation of the partitioned flow in virtual time: reflections in, versions out.

Each process is a core that does one thing after the other; a scan worker has slots for calls besides. Reflections
arrive in small lots (Poisson); a playbook's partition decides who shuffles and publishes it, and chance who scans a
node, as the product places them. A batch's tree, its size and the batches in flight are the product's, too.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random
from statistics import NormalDist, quantiles

from benchmarks.scale_out.costs import Costs, widths
from combee.process.settings.batch import BatchSettings
from combee_schemas import topics

LOT = 40
"""Reflections that arrive together, at most: so many events fewer."""
MAX_WAIT_S = float(BatchSettings.model_fields["max_wait_s"].default)
WEIGHT = 8
"""A lot counts once for so many reflections in percentiles."""
SIZES = (40, 80, 160, 320, 640, 1_280, 2_000)
SPARE = 1.25
"""A batch size is large enough if it carries so many times what arrives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What arrives: playbook number n has a share of 1 / n to the power of ``skew`` (Zipf)."""

    per_s: float
    playbooks: int
    skew: float

    def rates(self) -> list[float]:
        """Return the reflections a second of each playbook, the busiest first."""
        shares = [n**-self.skew for n in range(1, self.playbooks + 1)]
        return [self.per_s * share / sum(shares) for share in shares]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Processes of each service, and the topics they share."""

    partitions: int
    shuffle: int
    scan: int
    publish: int
    calls_each: int
    """Calls that a scan worker may have in flight."""
    in_flight: int
    """Batches of a playbook."""
    call_s: float
    sigma: float
    """Calls take log-normal times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run came to."""

    learned_per_s: float
    """In its second half."""
    behind_per_s: float
    """By so much more reflections wait for their version after each second of that half."""
    stale_s: tuple[float, float]
    """From arrival to version: median and 95th percentile."""
    busy: dict[str, float]
    """Of each service the share of time that its busiest process works; and of all calls that may be in flight."""
    last_s: float
    """When the last version was there."""


def batch_time_s(size: int, at: Deployment, costs: Costs) -> float:
    """Return about how long a batch takes where nobody waits: of each level the slowest call counts."""
    slowest = [
        at.call_s * math.exp(at.sigma * NormalDist().inv_cdf(width / (width + 1))) if width > 1 else at.call_s
        for width in widths(size)
    ]
    own = sum(costs.batch_s(role, size) for role in ("shuffle", "publish"))
    return sum(slowest) + own + len(slowest) * costs.hop_s + 2 * costs.transaction_s


def batch_size(rate: float, at: Deployment, costs: Costs) -> int:
    """Return the smallest size that keeps up, as the controller chooses; at most what a window gathers in time."""
    fitting = (size for size in SIZES if size * at.in_flight / batch_time_s(size, at, costs) >= SPARE * rate)
    chosen = next(fitting, SIZES[-1])
    gathered = int(rate * MAX_WAIT_S)
    return chosen if gathered >= chosen else max(4, gathered // LOT * LOT or gathered)


@dataclass(slots=True)
class _Core:
    free_at: float = 0.0
    busy_s: float = 0.0

    def work(self, now: float, seconds: float) -> float:
        """Do something when all before is done; return when it is done."""
        self.free_at = max(now, self.free_at) + seconds
        self.busy_s += seconds
        return self.free_at


@dataclass(slots=True)
class _Playbook:
    rate: float
    size: int
    partition: int
    lot: int
    waiting: deque[float] = field(default_factory=deque)
    """When each lot arrived."""
    in_flight: int = 0
    closed: int = 0
    applied: int = 0
    ready: dict[int, list[float]] = field(default_factory=dict)
    """Batches whose root has an answer, by number: versions follow one another."""


class Flow:
    """One run; ``arrive`` and ``fill`` bring reflections, ``run`` goes on until a time or until nothing is left."""

    def __init__(
        self, at: Deployment, costs: Costs, rates: Sequence[float], seed: int, size: int = 0
    ) -> None:
        self._at, self._costs = at, costs
        self._chance = Random(f"scale-out {seed}")  # noqa: S311 - reproducible, not secret
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._number = count()
        processes = {"shuffle": at.shuffle, "scan": at.scan, "publish": at.publish}
        self._cores = {role: [_Core() for _ in range(number)] for role, number in processes.items()}
        self._slots = [[0.0] * at.calls_each for _ in range(at.scan)]
        self._calling_s = 0.0
        self._playbooks = [
            self._playbook(n, rate, size or batch_size(rate, at, costs)) for n, rate in enumerate(rates)
        ]
        self._arrived: list[tuple[float, int]] = []
        """When lots arrived, and how large they are."""
        self._learned: list[tuple[float, float, int]] = []
        """When each arrived, when its version was there, and its size."""

    def _playbook(self, number: int, rate: float, size: int) -> _Playbook:
        key = f"playbook/{number}".encode()
        return _Playbook(
            rate=rate,
            size=size,
            partition=topics.partition_of(topics.REFLECTIONS.name, key, self._at.partitions),
            lot=max(lot for lot in range(1, LOT + 1) if size % lot == 0),
        )

    def arrive(self, until_s: float) -> None:
        """Let reflections arrive at the playbooks' rates."""
        for playbook in self._playbooks:
            self._next_lot(playbook, 0.0, until_s)

    def fill(self, reflections: int) -> None:
        """Let so many arrive at each playbook at once."""
        for playbook in self._playbooks:
            for _ in range(reflections // playbook.lot):
                self._at_time(0.0, partial(self._lot, playbook))

    def run(self, until_s: float = math.inf) -> Outcome:
        """Run, and say what came of it."""
        now = 0.0
        while self._events and self._events[0][0] <= until_s:
            now, _, event = heapq.heappop(self._events)
            event(now)
        end = now if math.isinf(until_s) else until_s
        half = end / 2
        learned = sum(lot for _, done, lot in self._learned if half < done <= end) / half
        arrived = sum(lot for at, lot in self._arrived if half < at <= end) / half
        stale = quantiles([done - at for at, done, lot in self._learned for _ in range(0, lot, WEIGHT)], n=20)
        busy = {role: max(core.busy_s for core in cores) / end for role, cores in self._cores.items()}
        busy["calls"] = self._calling_s / (self._at.scan * self._at.calls_each * end)
        return Outcome(
            learned_per_s=learned,
            behind_per_s=arrived - learned,
            stale_s=(stale[9], stale[18]),
            busy={role: min(share, 1.0) for role, share in busy.items()},
            last_s=max(done for _, done, _ in self._learned),
        )

    def _at_time(self, when: float, event: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._number), event))

    def _owner(self, role: str, playbook: _Playbook) -> _Core:
        cores = self._cores[role]
        return cores[playbook.partition * len(cores) // self._at.partitions]

    def _next_lot(self, playbook: _Playbook, now: float, until_s: float) -> None:
        when = now + self._chance.gammavariate(playbook.lot, 1 / playbook.rate)

        def arrived(now: float) -> None:
            self._lot(playbook, now)
            self._next_lot(playbook, now, until_s)

        if when <= until_s:
            self._at_time(when, arrived)

    def _lot(self, playbook: _Playbook, now: float) -> None:
        self._arrived.append((now, playbook.lot))
        work_s = playbook.lot * self._costs.by_role["shuffle"].reflection_ms / 1000

        def delivered(done: float) -> None:
            playbook.waiting.append(now)
            self._close(playbook, done)

        self._at_time(self._owner("shuffle", playbook).work(now, work_s), delivered)

    def _close(self, playbook: _Playbook, now: float) -> None:
        lots = playbook.size // playbook.lot
        while len(playbook.waiting) >= lots and playbook.in_flight < self._at.in_flight:
            members = [playbook.waiting.popleft() for _ in range(lots)]
            number, playbook.closed = playbook.closed, playbook.closed + 1
            playbook.in_flight += 1
            work_s = self._costs.by_role["shuffle"].unit_ms / 1000
            closed = self._owner("shuffle", playbook).work(now, work_s) + self._costs.transaction_s
            self._at_time(closed + self._costs.hop_s, partial(self._level, playbook, number, members, 0))

    def _level(self, playbook: _Playbook, number: int, members: list[float], level: int, now: float) -> None:
        """Ask the model for all nodes of a level; the next one begins when the last has answered."""
        shape, cost = widths(playbook.size), self._costs.by_role["scan"]
        if level == len(shape):
            self._publish(playbook, number, members, now)
            return
        each = playbook.size / shape[0] if level == 0 else 0.0
        first, last = self._chance.randrange(self._at.scan), now
        for n in range(shape[level]):
            worker = (first + n) % self._at.scan
            ready = self._cores["scan"][worker].work(now, (cost.unit_ms + each * cost.reflection_ms) / 1000)
            took_s = self._at.call_s * math.exp(self._at.sigma * self._chance.gauss(0.0, 1.0))
            answered = max(ready, self._slots[worker][0]) + took_s
            self._calling_s += took_s
            heapq.heapreplace(self._slots[worker], answered)
            last = max(last, answered)
        above = partial(self._level, playbook, number, members, level + 1)
        self._at_time(last + self._costs.hop_s, above)

    def _publish(self, playbook: _Playbook, number: int, members: list[float], now: float) -> None:
        playbook.ready[number] = members
        while playbook.applied in playbook.ready:
            lots = playbook.ready.pop(playbook.applied)
            playbook.applied += 1
            work_s = self._costs.batch_s("publish", playbook.size)
            done = self._owner("publish", playbook).work(now, work_s) + self._costs.transaction_s
            self._at_time(done, partial(self._version, playbook, lots))

    def _version(self, playbook: _Playbook, lots: list[float], now: float) -> None:
        self._learned += [(at, now, playbook.lot) for at in lots]
        playbook.in_flight -= 1
        self._close(playbook, now + self._costs.hop_s)
