"""A pipeline in simulated time: arrivals fill windows, batches take delays, versions move the controller."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from combee.core.batching.sizing.decide import decide
from combee.core.batching.sizing.policy import Iteration, SizingPolicy
from combee_schemas.control import BatchSize

Delay = Callable[[int, float], float]
"""Batch size and time of closing → seconds until its version."""
EPOCH_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One batch, and what stood once its version was out."""

    closed_s: float
    asked: int
    waiting: int
    after: BatchSize


def power_law(first_s: float, alpha: float, sigma: float = 0.0, seed: int = 0) -> Delay:
    """Return d(b) ∝ b^(1−α), with ``first_s`` at b = 5 and log-normal noise."""
    rng = Random(seed)
    return lambda size, _: first_s * (size / 5) ** (1 - alpha) * rng.lognormvariate(0.0, sigma)


def poisson(phases: Sequence[tuple[float, float]], seed: int = 0) -> Iterator[float]:
    """Yield arrival times for phases of (rate per second, seconds)."""
    rng, start = Random(seed), 0.0
    for rate, lasts in phases:
        at = start
        while rate and (at := at + rng.expovariate(rate)) < start + lasts:
            yield at
        start += lasts


def evenly(phases: Sequence[tuple[float, float]]) -> Iterator[float]:
    """Yield evenly spaced arrival times for phases of (rate per second, seconds)."""
    start = 0.0
    for rate, lasts in phases:
        yield from (start + number / rate for number in range(int(rate * lasts)))
        start += lasts


def run(
    policy: SizingPolicy,
    arrivals: Sequence[float],
    delay: Delay,
    *,
    max_wait_s: float = 30.0,
    late: int = 0,
    turns: int = 10_000,
) -> list[Turn]:
    """Cut batches until nothing is left; the size in force lags ``late`` versions behind the decision."""
    done, sizes = list[Turn](), [policy.configured] * (late + 1)
    standing: BatchSize | None = None
    taken, now = 0, 0.0
    slots = [0.0] * policy.in_flight
    while taken < len(arrivals) and len(done) < turns:
        asked, free = sizes[-1 - late], heapq.heappop(slots)
        full = arrivals[taken + asked - 1] if taken + asked <= len(arrivals) else float("inf")
        now = max(now, free, min(full, arrivals[taken] + max_wait_s))
        there = _count(arrivals, taken, now)
        count = min(asked, there)
        made = max(now + delay(count, now), max(slots, default=0.0))  # applied in order
        heapq.heappush(slots, made)
        seen = Iteration(
            playbook="p", sequence=len(done) + 1, asked=asked, reflections=count, is_fair=count == asked,
            waiting=there - count, closed_at_ms=EPOCH_MS + round(now * 1000), delay_s=made - now,
        )  # fmt: skip
        standing = decide(standing, seen, policy)
        sizes.append(standing.batch_size)
        done.append(Turn(closed_s=now, asked=asked, waiting=there - count, after=standing))
        taken += count
    return done


def _count(arrivals: Sequence[float], start: int, now: float) -> int:
    end = start
    while end < len(arrivals) and arrivals[end] <= now:
        end += 1
    return end - start
