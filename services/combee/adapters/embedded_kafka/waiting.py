"""Waiting for a condition with a deadline, and for several steps at once."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from combee.adapters.embedded_kafka.errors import EmbeddedKafkaError

POLL_S = 0.02


async def until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Return True as soon as the condition holds, False if it still does not after ``timeout_s``."""
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 - other processes set no event
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        return condition()
    return True


async def run_all(steps: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all steps at once; the first that fails cancels the others, and its error is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for step in steps:
                group.create_task(step)
    except* EmbeddedKafkaError as failed:
        raise failed.exceptions[0] from failed
