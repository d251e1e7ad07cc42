"""The soak: random faults for long, while a driver publishes at half of what the services can take."""

import asyncio
import csv
import json
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from support.faults.actions import end_processes, freeze, refuse_calls, restart_broker, separate
from support.faults.brokers import Fronted
from support.faults.cluster import ROLES
from support.faults.driver import CHUNK, Driver, items
from support.faults.run import SETTLE_S, Outcome, Run

FIFTHS = 5
RSS_RATIO = 1.2
DESCRIPTORS_MORE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one process held at one moment of the soak."""

    at_s: float
    rss_bytes: int
    descriptors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flatness:
    """Medians of the second and the last fifth of a soak, of one process."""

    rss_early_bytes: float
    rss_late_bytes: float
    descriptors_early: float
    descriptors_late: float

    @property
    def flat(self) -> bool:
        """Whether neither memory nor descriptors grew beyond the bounds."""
        return (
            self.rss_late_bytes <= RSS_RATIO * self.rss_early_bytes
            and self.descriptors_late <= self.descriptors_early + DESCRIPTORS_MORE
        )


def sample(pid: int, at_s: float) -> Sample | None:
    """Look at one process; nothing when it has ended."""
    try:
        process = psutil.Process(pid)
        return Sample(
            at_s=at_s,
            rss_bytes=process.memory_info().rss,
            descriptors=process.num_fds(),
        )
    except psutil.NoSuchProcess:
        return None


def flatness(samples: Sequence[Sample], soak_s: float) -> Flatness | None:
    """Compare the last fifth with the second; nothing without samples of both."""
    fifth_s = soak_s / FIFTHS
    early = [s for s in samples if fifth_s <= s.at_s < 2 * fifth_s]
    late = [s for s in samples if s.at_s >= soak_s - fifth_s]
    if not early or not late:
        return None
    return Flatness(
        rss_early_bytes=statistics.median(s.rss_bytes for s in early),
        rss_late_bytes=statistics.median(s.rss_bytes for s in late),
        descriptors_early=statistics.median(s.descriptors for s in early),
        descriptors_late=statistics.median(s.descriptors for s in late),
    )


SATURATING = 240
SAMPLE_S = 3.0
SAY_S = 60.0
KINDS = (
    "kill one",
    "kill all",
    "SIGTERM",
    "short freeze",
    "long freeze",
    "model down",
    "broker killed",
    "network silent",
    "network resets",
)
SHORT_S, LONG_S = 3.0, 20.0
"""Shorter and longer than a session (10 s)."""
OVER_S = 180.0
"""A fault that begins at the end takes so long at most."""
Say = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class Soak:
    """One soak: what it published, its faults, what the processes that nobody killed held."""

    seconds: float
    seed: int
    broker: Fronted
    """Services reach it through the proxy; the driver and what reads the topics do not."""
    say: Say
    gaps_s: tuple[float, float] = (20.0, 60.0)
    rate_per_s: float = 0.0
    faults: list[str] = field(default_factory=list)
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    async def __call__(self, run: Run) -> None:
        """Measure the capacity, then publish, inject faults and take samples until the time is over."""
        driver = Driver(run.cluster.log)
        try:
            self.rate_per_s = await self._capacity(run, driver) / 2
            until = time.monotonic() + self.seconds
            async with asyncio.timeout(self.seconds + OVER_S), asyncio.TaskGroup() as group:
                group.create_task(self._publish(driver, until))
                group.create_task(self._inject_faults(run, until))
                group.create_task(self._sample(run, driver, until))
        finally:
            run.driver.acked |= driver.acked
            run.driver.traces += driver.traces
            await driver.close()

    async def _capacity(self, run: Run, driver: Driver) -> float:
        began = time.monotonic()
        await driver.publish(items(SATURATING, self.seed * 1_000_000))
        progress = run.progress
        await progress.until(
            lambda: driver.acked.keys() <= progress.offsets.keys() and not progress.unsettled(driver.acked),
            SETTLE_S,
            "the capacity could not be measured",
        )
        return SATURATING / (time.monotonic() - began)

    async def _publish(self, driver: Driver, until: float) -> None:
        chunk, due = 0, time.monotonic()
        while due < until:
            chunk += 1
            await driver.publish(items(CHUNK, self.seed * 1_000_000 + chunk))
            due = max(due + CHUNK / self.rate_per_s, time.monotonic())
            await asyncio.sleep(due - time.monotonic())

    async def _inject_faults(self, run: Run, until: float) -> None:
        while (gap_s := run.rng.uniform(*self.gaps_s)) + time.monotonic() < until:
            await asyncio.sleep(gap_s)
            kind, role = run.rng.choice(KINDS), run.rng.choice(ROLES)
            self.faults.append(f"{kind}: {role}")
            await self._inject(run, kind, role)

    async def _inject(self, run: Run, kind: str, role: str) -> None:
        if kind == "model down":
            await refuse_calls(run, SHORT_S)
        elif kind == "broker killed":
            await restart_broker(run, self.broker.kafka)
        elif kind == "network silent":
            await separate(run, self.broker.proxy, SHORT_S, "silent", *ROLES)
        elif kind == "network resets":
            await separate(run, self.broker.proxy, SHORT_S, "resets", *ROLES)
        elif kind == "short freeze":
            await freeze(run, role, SHORT_S)
        elif kind == "long freeze":
            await freeze(run, role, LONG_S)
        else:
            names = [run.cluster.names(victim)[1] for victim in (ROLES if kind == "kill all" else (role,))]
            await end_processes(run, names, signal.SIGTERM if kind == "SIGTERM" else signal.SIGKILL)

    async def _sample(self, run: Run, driver: Driver, until: float) -> None:
        began = said = time.monotonic()
        names = (run.cluster.names(role)[0] for role in ROLES)
        spared = {name: run.cluster.supervisor.pid(name) for name in names}
        while (now := time.monotonic()) < until:
            for name, pid in spared.items():
                assert run.cluster.supervisor.pid(name) == pid, f"{name} ended, though nobody had told it to"
                if usage := sample(pid, now - began):
                    self.samples.setdefault(name, []).append(usage)
            if now - said >= SAY_S:
                said, applied = now, len(driver.acked) - len(run.progress.unsettled(driver.acked))
                self.say(f"published {len(driver.acked)}, applied {applied}, faults {len(self.faults)}")
            await asyncio.sleep(SAMPLE_S)

    def flatness(self) -> dict[str, Flatness | None]:
        """Return how flat each process stayed that nobody killed."""
        return {name: flatness(samples, self.seconds) for name, samples in self.samples.items()}


MIB = 2**20


def write_report(folder: Path, soak: Soak, outcome: Outcome) -> None:
    """Write ``soak.json`` and ``soak.csv``."""
    processes = {name: process for name, process in soak.flatness().items() if process}
    document = {
        "simulated": True,
        "minutes": soak.seconds / 60,
        "seed": soak.seed,
        "rate_per_s": soak.rate_per_s,
        "faults": soak.faults,
        "outcome": asdict(outcome),
        "processes": {name: asdict(process) for name, process in processes.items()},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "soak.json").write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    with (folder / "soak.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [("figure", "value"), *_figures(soak, outcome), *_flatness(processes)]
        )


def _figures(soak: Soak, outcome: Outcome) -> Iterator[tuple[str, str]]:
    kinds = Counter(fault.partition(":")[0] for fault in soak.faults)
    yield "minutes", f"{soak.seconds / 60:g}"
    yield "seed", str(soak.seed)
    yield "items a second, half of the measured capacity", f"{soak.rate_per_s:.1f}"
    yield "model", "simulated"
    yield "acknowledged", str(outcome.acknowledged)
    yield "lost", str(outcome.lost)
    yield "double", str(outcome.double)
    yield "dead letters", str(outcome.dead_lettered)
    yield "model calls", str(outcome.calls)
    yield "model calls made again", str(outcome.extra_calls)
    yield "faults", str(len(soak.faults))
    yield from ((f"faults: {kind}", str(times)) for kind, times in sorted(kinds.items()))


def _flatness(processes: Mapping[str, Flatness]) -> Iterator[tuple[str, str]]:
    for name, process in processes.items():
        yield f"{name}: memory, early (MiB)", f"{process.rss_early_bytes / MIB:.0f}"
        yield f"{name}: memory, late (MiB)", f"{process.rss_late_bytes / MIB:.0f}"
        yield f"{name}: memory, ratio", f"{process.rss_late_bytes / process.rss_early_bytes:.2f}"
        yield f"{name}: descriptors, early", f"{process.descriptors_early:.0f}"
        yield f"{name}: descriptors, late", f"{process.descriptors_late:.0f}"
