"""The one retry loop: a call is made again with growing waits, as long as its errors may pass."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import stamina

T = TypeVar("T")
Retriable = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool | float]
"""The errors after which a call is made again; or what returns that for an error, or how long to wait (s)."""


async def repeated(
    call: Callable[[int], Awaitable[T]],
    *,
    on: Retriable,
    first_wait_s: float,
    max_wait_s: float,
    jitter_s: float = 1.0,
) -> T:
    """Return what a call returns, which gets the number of its attempt, from 1; other errors are raised."""
    try:
        return await call(1)  # nearly always: what counts attempts costs more than the call itself
    except Exception as error:  # noqa: BLE001 - the loop below raises it where it is not retriable
        first = error
    async for attempt in stamina.retry_context(
        on=on,
        attempts=None,
        timeout=None,
        wait_initial=first_wait_s,
        wait_jitter=jitter_s,
        wait_max=max_wait_s,
    ):
        with attempt:
            if attempt.num == 1:
                raise first
            return await call(attempt.num)
    raise AssertionError("stamina ends with a result or an error")
