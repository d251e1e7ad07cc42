"""When a server wants to be asked again."""

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

LONGEST_S = 120.0
"""A longer wish is cut: a worker asks again at least this often."""


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the wait a reply's headers ask for, in seconds, or None."""
    milliseconds = _number(headers.get("retry-after-ms"))
    wish = headers.get("retry-after")
    seconds = milliseconds / 1000 if milliseconds is not None else _number(wish)
    if seconds is None and wish:
        seconds = _until(wish, headers.get("date"))
    return None if seconds is None else min(max(seconds, 0.0), LONGEST_S)


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _until(wish: str, date: str | None) -> float | None:
    # Both times are the server's, so that no difference between two clocks matters.
    try:
        return (parsedate_to_datetime(wish) - parsedate_to_datetime(date or "")).total_seconds()
    except (ValueError, TypeError):
        return None
