"""Retries: work continues when the log is back, after an outage of any length."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from combee.adapters.attempts import repeated
from combee.adapters.ports import FencedError, Log, Outgoing, TransientError

T = TypeVar("T")

LONGEST_WAIT_S = 3.0
"""Maximum seconds between two attempts, so that the log's return is noticed within five seconds."""
RETRIABLE = (TransientError, FencedError)
"""Retried errors. Without a transactional id of one's own, being fenced is temporary."""


async def retried(work: Callable[[], Awaitable[T]]) -> T:
    """Return the result of ``work``, repeated until it raises no retriable error."""
    return await repeated(lambda _: work(), on=RETRIABLE, first_wait_s=0.2, max_wait_s=LONGEST_WAIT_S)


async def write(log: Log, *outgoing: Outgoing) -> None:
    """Write records until they are acknowledged, because repeating a model call would cost more.

    A record whose acknowledgement was lost is written twice; its id makes the second one a repeat.
    """
    await retried(lambda: log.produce(*outgoing))
