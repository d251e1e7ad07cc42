"""The one retry loop: a call is repeated with growing waits while its errors may be temporary."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import stamina

T = TypeVar("T")
Retriable = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool | float]
"""The retriable errors; or a function that returns for an error whether, or after how many seconds, to retry."""


async def repeated(
    call: Callable[[int], Awaitable[T]],
    *,
    on: Retriable,
    first_wait_s: float,
    max_wait_s: float,
    jitter_s: float = 1.0,
) -> T:
    """Return the result of a call, which gets its attempt number, from 1; other errors are raised."""
    try:
        return await call(1)  # the usual case: counting attempts would cost more than the call
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
