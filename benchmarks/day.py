"""``python -m benchmarks.day``: what learning costs a day, by reflections a day and price of the model.

Writes docs/results/tables/day.csv. Calls and the tokens that they read are measured: the product's prompts and tree
on a full playbook, asked of the stand-in model (a simulation) that rewords, behind a server with a prompt cache. What
a real model writes, and the length of a run, are assumed, as are prices.
"""

import asyncio
import csv
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random

from rich.console import Console
from rich.table import Table

from benchmarks.budget import REFLECTION_REPLY_TOKENS, REPLY_TOKENS, TRACE_TOKENS
from combee.scan.head_start import HeadStart
from combee_experiments.arms.agents import reflect_all
from combee_experiments.arms.arms import ADAPTIVE
from combee_experiments.arms.learning import iterate
from combee_experiments.arms.tails import Pace
from combee_experiments.data.generated import filled
from combee_experiments.data.samples import Data, family
from combee_experiments.price.experiment import BUDGET_TOKENS, MODELS, STARTS
from combee_experiments.price.report import REWORDED
from combee_experiments.price.server import CachingServer
from combee_experiments.running.virtual_time import LoopClock, run_virtual
from combee_schemas.base import DAY_MS, Usage
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_sim.inprocess import SimulatedModel

TABLE = Path(__file__).parents[1] / "docs" / "results" / "tables" / "day.csv"
RATES = (100, 1_000, 10_000, 100_000)
"""Reflections a day, evenly spread."""
WAITS_S = (30.0, 3_600.0)
"""``COMBEE_MAX_WAIT_S``: the default, and an hour."""
BATCH_SIZE = 40
REFLECTIONS, LESSONS = 120, 30
PRICES = {"small": (0.10, 0.025, 0.40), "middle": (0.40, 0.10, 1.60), "large": (2.00, 0.50, 8.00)}
"""Assumed: dollars per million tokens read, read from the cache, and written."""
DAY_S = DAY_MS / 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What one reflection takes, in the mean."""

    calls: float
    read: float
    cached: float
    written: float

    def price(self, new: float, cached: float, out: float) -> float:
        """Return dollars at prices per million tokens."""
        return ((self.read - self.cached) * new + self.cached * cached + self.written * out) / 1e6


def batch_of(rate: int, wait_s: float) -> int:
    """Return the number of reflections in a window."""
    return min(BATCH_SIZE, max(1, round(rate * wait_s / DAY_S)))


def measured(rate: int, wait_s: float) -> Spent:
    """Return what a reflection takes at a rate, reflecting included."""
    size = batch_of(rate, wait_s)
    count = REFLECTIONS if size > 1 else REFLECTIONS // 3
    return run_virtual(_spent(count, size, pause_s=size * DAY_S / rate))


async def _spent(count: int, size: int, *, pause_s: float) -> Spent:
    data, fails = family(count, quantities=LESSONS), MODELS[REWORDED]
    model = SimulatedModel(seed=0, knowledge=data.knowledge, law=fails.law, modes=fails.modes)
    book = filled([], STARTS[-1], Random(0))  # noqa: S311 - reproducible, not secret
    reflecting, curating = CachingServer(model, Pace()), CachingServer(model, Pace())
    made = await _reflected(reflecting, model, book, data)

    async def ready(_: Playbook, start: int, end: int) -> Sequence[Reflection]:
        await asyncio.sleep(pause_s if start else 0.0)
        return made[start:end]

    starts_first = HeadStart(LoopClock())
    await iterate(
        curating,
        ready,
        count,
        ADAPTIVE,
        size,
        budget_tokens=BUDGET_TOKENS,
        begin=book,
        head_start=starts_first,
    )
    runs, curators = (sum(server.usage.values(), Usage()) for server in (reflecting, curating))
    return Spent(
        calls=(runs.calls + curators.calls) / count,
        read=(runs.tokens_in + curators.tokens_in) / count + TRACE_TOKENS,
        cached=curators.cached_tokens / count,
        written=(runs.calls * REFLECTION_REPLY_TOKENS + curators.calls * REPLY_TOKENS) / count,
    )


async def _reflected(
    server: CachingServer, agents: SimulatedModel, book: Playbook, data: Data
) -> tuple[Reflection, ...]:
    return await reflect_all(server, book, data.train, agents=agents)


def rows() -> list[tuple[str, ...]]:
    """Return the table."""
    head = ("reflections a day", "a window waits", "in a batch", "calls", "tokens read", "of them cached")
    table = [(*head, "written", *(f"{name} model" for name in PRICES))]
    for rate, wait_s in product(RATES, WAITS_S):
        spent = measured(rate, wait_s)
        tokens = (spent.calls, spent.read, spent.cached, spent.written)
        dollars = (rate * spent.price(*price) for price in PRICES.values())
        table.append(
            (
                f"{rate:,}",
                f"{wait_s:.0f} s",
                str(batch_of(rate, wait_s)),
                *(f"{rate * number:,.0f}" for number in tokens),
                *(f"${money:,.2f}" for money in dollars),
            )
        )
    return table


def main() -> None:
    """Measure, print and write the table."""
    made = rows()
    shown = Table(*made[0], title="a day (simulated)")
    for row in made[1:]:
        shown.add_row(*row)
    Console().print(shown)
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(made)


if __name__ == "__main__":
    main()
