"""Retries: work goes on when the log is back, however long it was away."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from combee.adapters.attempts import repeated
from combee.adapters.ports import FencedError, Log, Outgoing, TransientError

T = TypeVar("T")

LONGEST_WAIT_S = 3.0
"""Between two attempts: the log's return is noticed within five seconds."""
RETRIABLE = (TransientError, FencedError)
"""Who owns no transactional id has nothing that a newer owner could take over."""


async def retried(work: Callable[[], Awaitable[T]]) -> T:
    """Return what ``work`` returns, tried again until it raises no retriable error."""
    return await repeated(lambda _: work(), on=RETRIABLE, first_wait_s=0.2, max_wait_s=LONGEST_WAIT_S)


async def write(log: Log, *outgoing: Outgoing) -> None:
    """Write records until they are acknowledged: what a model was asked for is not asked for again.

    A record whose acknowledgement was lost is there twice; its id makes the second one a repeat.
    """
    await retried(lambda: log.produce(*outgoing))
