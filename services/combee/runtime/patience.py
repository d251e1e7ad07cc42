"""Work that goes on when the log is back, however long it was away."""

from collections.abc import AsyncIterator

import stamina

from combee.ports import Log, Outgoing, TransientError

LONGEST_WAIT_S = 3.0
"""Between two attempts: the log's return is noticed within five seconds."""


def patiently() -> AsyncIterator[stamina.Attempt]:
    """Yield attempts until one raises no TransientError."""
    return stamina.retry_context(
        on=TransientError, attempts=None, timeout=None, wait_initial=0.2, wait_max=LONGEST_WAIT_S
    ).__aiter__()


async def write(log: Log, *outgoing: Outgoing) -> None:
    """Write records until they are acknowledged: what a model was asked for is not asked for again.

    A record whose acknowledgement was lost is there twice; its id makes the second one a repeat.
    """
    async for attempt in patiently():
        with attempt:
            await log.produce(*outgoing)
