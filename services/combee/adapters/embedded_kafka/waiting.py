"""Waiting: for a condition with a deadline, and for several steps side by side."""

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


async def together(steps: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Take all steps side by side; the first that fails ends the others, and its error is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for step in steps:
                group.create_task(step)
    except* EmbeddedKafkaError as failed:
        raise failed.exceptions[0] from failed
