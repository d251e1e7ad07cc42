"""Waits between the attempts of a call, also those that a server asks for."""

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TypeVar

from combee.adapters.asking.errors import CallFailedError
from combee.adapters.attempts import repeated

T = TypeVar("T")

LONGEST_S = 120.0
"""Maximum seconds between attempts, even if a server asks for a longer wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Waits between attempts, in seconds; ``give_up_after_s`` None: a call is repeated until it succeeds."""

    first_wait_s: float
    max_wait_s: float
    permanent_wait_s: float
    give_up_after_s: float | None


class RetryWaits:
    """Decides after each failure of one call how long to wait; stamina calls it."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._failing_since_s: float | None = None
        self._failing_for_s = 0.0

    def failed_at(self, now_s: float) -> None:
        """Note a failure; ``give_up_after_s`` is counted from the first."""
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        self._failing_for_s = now_s - self._failing_since_s

    def __call__(self, error: Exception) -> bool | float:
        """Return the wait in seconds, True for the usual back-off, False for no further attempt."""
        if not isinstance(error, CallFailedError):
            return False
        wait_s = self._requested_wait_s(error)
        limit_s = self._policy.give_up_after_s
        if limit_s is not None and self._failing_for_s + (wait_s or 0.0) >= limit_s:
            return False
        return True if wait_s is None else wait_s

    def _requested_wait_s(self, error: CallFailedError) -> float | None:
        if error.permanent:
            return self._policy.permanent_wait_s
        if error.retry_after_s is None:
            return None
        # "Retry-After: 0" from a server that never recovers must not become a busy loop.
        return max(error.retry_after_s, self._policy.first_wait_s)


async def tried(
    policy: RetryPolicy,
    call: Callable[[int], Awaitable[T]],
    on_failure: Callable[[CallFailedError], None] = lambda _error: None,
) -> T:
    """Return the result of a call, which gets its attempt number and is retried as the policy says."""
    waits = RetryWaits(policy)

    async def noted(attempt: int) -> T:
        try:
            return await call(attempt)
        except CallFailedError as failed:
            waits.failed_at(time.monotonic())
            on_failure(failed)
            raise

    return await repeated(
        noted,
        on=waits,
        first_wait_s=policy.first_wait_s,
        max_wait_s=policy.max_wait_s,
        jitter_s=policy.first_wait_s,
    )


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait by a reply's headers, or None."""
    milliseconds = _number(headers.get("retry-after-ms"))
    requested = headers.get("retry-after")
    seconds = milliseconds / 1000 if milliseconds is not None else _number(requested)
    if seconds is None and requested:
        seconds = _until(requested, headers.get("date"))
    return None if seconds is None else min(max(seconds, 0.0), LONGEST_S)


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _until(requested: str, date: str | None) -> float | None:
    # Both times are the server's: the clocks' difference does not matter.
    try:
        return (parsedate_to_datetime(requested) - parsedate_to_datetime(date or "")).total_seconds()
    except (ValueError, TypeError):
        return None
