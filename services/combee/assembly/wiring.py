"""Running each service with the views that it reads: the same on Kafka, in experiments and in tests.

Nothing here knows Kafka, Faust or a server: ``compose`` brings them. A service is constructed first, so that its
views can be watched, and then run; its views end with it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import closing, suppress
from typing import Any

from combee.adapters.ports import NO_TRACING, Clock, Log, TopicPartition, Tracing
from combee.control.controller import Controller
from combee.control.outcomes import OutcomeFolder
from combee.log.evaluation.judge import Judges
from combee.process.worker.dead_letter_limiter import DeadLetterLimiter
from combee.process.worker.loop import Loop
from combee.process.worker.passed_over import PassedOver
from combee.process.worker.session import first_of, together, unless
from combee.process.worker.views import View
from combee.reflect.handler import ReflectHandler
from combee.scan.handler import ScanHandler
from combee.shuffle.shuffler import Shuffler
from combee_schemas import topics
from combee_schemas.playbook import Label

CURRENT_S = 60.0
"""Seconds to read a view; after that the session ends."""
MAX_OPEN = 1_000
"""Maximum number of open records in an experiment or a test; a worker has its own limit."""
DELIVERED = (topics.REFLECTIONS.name, topics.COMMANDS.name)

OnTurn = Callable[[], None]


def no_hook(*_: object) -> None:
    """Do nothing."""


# ---- reflect and scan, which ask a model


async def run_handler(
    log: Log,
    handler: ReflectHandler | ScanHandler,
    clock: Clock,
    stop: asyncio.Event,
    *,
    max_open: int = MAX_OPEN,
    drain_s: float = 0.0,
    limiter: DeadLetterLimiter | None = None,
    on_ready: OnTurn = no_hook,
    on_turn: Callable[[Mapping[TopicPartition, int]], None] = no_hook,
    tracing: Tracing = NO_TRACING,
) -> None:
    """Run a handler's consume loop until ``stop``, once its view of the playbooks is current."""
    view = handler.playbooks.view
    manifests = handler.manifests if isinstance(handler, ScanHandler) else None
    pauses = handler if isinstance(handler, ReflectHandler) else None
    passed = PassedOver(pauses.is_paused, pauses.resumed) if pauses else None
    loop = Loop(
        log,
        handler,
        clock,
        max_open=max_open,
        on_turn=on_turn,
        limiter=limiter,
        passed=passed,
        tracing=tracing,
    )

    async def consume() -> None:
        with closing(loop.run(stop, drain_s=drain_s)) as work:
            if await unless(stop, current()):
                on_ready()
                await work

    async def current() -> None:
        async with asyncio.timeout(CURRENT_S):
            await view.wait_current(CURRENT_S)
            if manifests:
                await manifests.wait_current()

    await together(consume(), view.run(), *([manifests.run()] if manifests else []))


# ---- shuffle, which needs a delivery


async def run_shuffle(shuffler: Shuffler, delivery: Coroutine[Any, Any, None]) -> None:
    """Run the shuffle service with a delivery of records: a Faust app, or ``delivery_without_faust``."""
    views = (shuffler.playbooks.view.run(), shuffler.sizes.run())
    await together(delivery, *views, shuffler.neighbours.run())


async def delivery_without_faust(
    log: Log, shuffler: Shuffler, partitions: Iterable[int], *, look_s: float | None = None
) -> None:
    """Deliver all records as Faust does, in order per partition; check the windows every ``look_s``."""

    async def deliver(topic: str) -> None:
        async for records in log.follow(topic):
            for record in records or ():
                shuffler.deliver([record])

    async def turn() -> None:
        await shuffler.assign(partitions)
        while True:
            shuffler.wake.clear()
            await shuffler.turn()
            with suppress(TimeoutError):
                async with asyncio.timeout(look_s):
                    await shuffler.wake.wait()

    await together(turn(), *map(deliver, DELIVERED))


# ---- evaluate

LOOK_AGAIN_S = 20.0
"""Seconds until a candidate that could not be judged (cap reached, answer unusable) is judged again."""


async def run_evaluate(
    judges: Judges,
    labels: View[Label],
    changed: asyncio.Event,
    stop: asyncio.Event,
    on_turn: OnTurn = no_hook,
) -> None:
    """Judge waiting and future candidates until ``stop``; ``changed`` is set when a label moves."""

    async def work() -> None:
        await labels.wait_current(CURRENT_S)
        while not stop.is_set():
            changed.clear()
            on_turn()
            await judges.judge(lambda: labels.all().values(), on_turn)
            await first_of(changed, stop, within_s=LOOK_AGAIN_S)

    async def until_stopped() -> None:
        await unless(stop, work())

    await together(until_stopped(), labels.run())


# ---- control


async def run_outcomes(outcomes: OutcomeFolder, stop: asyncio.Event) -> None:
    """Fold outcomes until ``stop``."""
    await together(outcomes.session(stop), outcomes.canaries.labels.run())


async def run_control(controller: Controller, stop: asyncio.Event, on_turn: OnTurn = no_hook) -> None:
    """Decide about batch sizes until ``stop``."""
    await together(controller.session(stop, on_turn), controller.playbooks.view.run(), controller.sizes.run())
