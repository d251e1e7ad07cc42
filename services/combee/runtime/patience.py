"""Work that goes on when the log is back, however long it was away."""

from collections.abc import AsyncIterator

import stamina

from combee.ports import FencedError, Log, Outgoing, TransientError

LONGEST_WAIT_S = 3.0
"""Between two attempts: the log's return is noticed within five seconds."""

HEALS = (TransientError, FencedError)
"""Who owns no transactional id has nothing that a newer owner could take over."""


def patiently() -> AsyncIterator[stamina.Attempt]:
    """Yield attempts until one raises nothing that heals by itself."""
    return stamina.retry_context(
        on=HEALS, attempts=None, timeout=None, wait_initial=0.2, wait_max=LONGEST_WAIT_S
    ).__aiter__()


async def write(log: Log, *outgoing: Outgoing) -> None:
    """Write records until they are acknowledged: what a model was asked for is not asked for again.

    A record whose acknowledgement was lost is there twice; its id makes the second one a repeat.
    """
    async for attempt in patiently():
        with attempt:
            await log.produce(*outgoing)
