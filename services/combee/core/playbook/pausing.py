"""Pauses that a person orders: how long one may last, and whether it holds; pure."""

from collections.abc import Iterable, Mapping

from combee.core.playbook.spend import Pause
from combee_schemas.base import DAY_MS
from combee_schemas.playbook import PauseOrder
from combee_schemas.topics import FOR_EVER

PART_LEFT = 7
"""A pause ends when this part of the retention of what waits is left: of a trace's seven days the last one."""
LONGEST_MS = 365 * DAY_MS
"""Maximum length of a pause where nothing expires."""
WARNED_MS = DAY_MS
"""Time before the end of a pause, set by retention, from which services warn; half of a shorter pause."""

WOULD_EXPIRE = "at the latest, because waiting runs would expire"


def latest_end(waiting: Iterable[tuple[int | None, int]], now_ms: int) -> int:
    """Return when a pause that begins now must end, so that what waits can still be read.

    ``waiting``: per topic, the time of its oldest unread record (None: there is none) and its retention.
    """
    ends = [
        min(now_ms if oldest_ms is None else oldest_ms, now_ms) + retention_ms - retention_ms // PART_LEFT
        for oldest_ms, retention_ms in waiting
        if retention_ms != FOR_EVER
    ]
    return min([now_ms + LONGEST_MS, *ends])


def order_of(orders: Iterable[PauseOrder | None], now_ms: int) -> PauseOrder | None:
    """Return the order under which a line is paused, of its own and its playbook's; None: it learns."""
    held = [order for order in orders if order is not None and now_ms < order.until_ms]
    return max(held, key=lambda order: order.until_ms, default=None)


def pause_of(orders: Mapping[str, PauseOrder | None], now_ms: int) -> Pause | None:
    """Return why a line's next batch waits for the end of an order, given its own and its playbook's; None: none."""
    order = order_of(orders.values(), now_ms)
    if order is None:
        return None
    name = next(name for name, known in orders.items() if known == order)
    why = f"; {WOULD_EXPIRE}" if order.by_retention else ""
    return Pause(
        reason=f"by {order.issued_by or 'somebody'}{why}",
        until_ms=order.until_ms,
        remedy=f"'combee playbook resume {name}'",
    )


def ends_soon(order: PauseOrder, now_ms: int) -> bool:
    """Return whether retention is about to end a pause, which its owner may want to know."""
    ahead_ms = min(WARNED_MS, (order.until_ms - order.since_ms) // 2)
    return order.by_retention and now_ms >= order.until_ms - ahead_ms
