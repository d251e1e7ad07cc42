"""The soak: a fault that lasts, while a driver publishes at half of what the services can take."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from support.faults_broker import Fronted
from support.faults_driver import CHUNK, Driver, items
from support.faults_injected import end
from support.faults_scenario import SETTLE_S, Run
from support.faults_stage import ROLES
from support.soak_flat import Flatness, Sample, flatness, sampled

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
    """One soak: what it published, how it hurt, what the spared processes held."""

    seconds: float
    seed: int
    broker: Fronted
    """Services reach it through the proxy, the driver and the watch past it."""
    say: Say
    gaps_s: tuple[float, float] = (20.0, 60.0)
    rate_per_s: float = 0.0
    faults: list[str] = field(default_factory=list)
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    async def __call__(self, run: Run) -> None:
        """Measure the capacity, then publish, hurt and look until the time is over."""
        driver = Driver(run.stage.log)
        try:
            self.rate_per_s = await self._capacity(run, driver) / 2
            until = time.monotonic() + self.seconds
            async with asyncio.timeout(self.seconds + OVER_S), asyncio.TaskGroup() as group:
                group.create_task(self._publish(driver, until))
                group.create_task(self._hurt(run, until))
                group.create_task(self._look(run, driver, until))
        finally:
            run.driver.acked |= driver.acked
            run.driver.traces += driver.traces
            await driver.close()

    async def _capacity(self, run: Run, driver: Driver) -> float:
        began = time.monotonic()
        await driver.publish(items(SATURATING, self.seed * 1_000_000))
        watch = run.watch
        await watch.until(
            lambda: driver.acked.keys() <= watch.offsets.keys() and not watch.unsettled(driver.acked),
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

    async def _hurt(self, run: Run, until: float) -> None:
        while (gap_s := run.rng.uniform(*self.gaps_s)) + time.monotonic() < until:
            await asyncio.sleep(gap_s)
            kind, role = run.rng.choice(KINDS), run.rng.choice(ROLES)
            self.faults.append(f"{kind}: {role}")
            await self._one(run, kind, role)

    async def _one(self, run: Run, kind: str, role: str) -> None:
        spare, victim = run.stage.names(role)
        if kind == "model down":
            run.hurt("model")
            run.stage.model_faults(down_for_s=SHORT_S)
        elif kind == "broker killed":
            self.broker.kafka.kill()
            await self.broker.kafka.restart_node(1)
            run.hurt(*ROLES)
        elif kind.startswith("network"):
            await self._separate(run, silent=kind.endswith("silent"))
        elif kind.endswith("freeze"):
            pid = run.stage.supervisor.pid(spare)
            run.hurt(role)
            os.kill(pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(LONG_S if kind == "long freeze" else SHORT_S)
            finally:
                os.kill(pid, signal.SIGCONT)
        else:
            names = [run.stage.names(one)[1] for one in ROLES] if kind == "kill all" else [victim]
            await end(run, names, signal.SIGTERM if kind == "SIGTERM" else signal.SIGKILL)

    async def _separate(self, run: Run, *, silent: bool) -> None:
        proxy = self.broker.proxy
        proxy.hold() if silent else proxy.cut()
        await asyncio.sleep(SHORT_S)
        proxy.heal()
        run.hurt(*ROLES)

    async def _look(self, run: Run, driver: Driver, until: float) -> None:
        began = said = time.monotonic()
        names = (run.stage.names(role)[0] for role in ROLES)
        spared = {name: run.stage.supervisor.pid(name) for name in names}
        while (now := time.monotonic()) < until:
            for name, pid in spared.items():
                assert run.stage.supervisor.pid(name) == pid, f"{name} ended, though nobody had told it to"
                if one := sampled(pid, now - began):
                    self.samples.setdefault(name, []).append(one)
            if now - said >= SAY_S:
                said, applied = now, len(driver.acked) - len(run.watch.unsettled(driver.acked))
                self.say(f"published {len(driver.acked)}, applied {applied}, faults {len(self.faults)}")
            await asyncio.sleep(SAMPLE_S)

    def flatness(self) -> dict[str, Flatness | None]:
        """Return how flat each process stayed that nobody killed."""
        return {name: flatness(found, self.seconds) for name, found in self.samples.items()}
