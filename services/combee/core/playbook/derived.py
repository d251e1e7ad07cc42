"""Results derived from a version alone, computed once for all calls on it.

A batch uses one version many times: for every group, and for every combine. Rendering it, and indexing its entries,
costs in proportion to the playbook's size, so it must not happen in each call.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import TypeVar

from combee_schemas.playbook import Playbook

T = TypeVar("T")

VERSIONS_KEPT = 24
"""Cache size: versions, last used first; each takes some megabytes if playbooks are full."""


def once_per_version(
    work: Callable[[Playbook], T], after: Callable[[Playbook, T, Playbook], T | None] | None = None
) -> Callable[[Playbook], T]:
    """Return a cached ``work``; its result is shared by all callers and must not be changed.

    The cache key is the version object, because comparing versions would also cost in proportion to their size.
    ``after`` may compute the result from an earlier version and its result.
    """
    known: OrderedDict[int, tuple[Playbook, T]] = OrderedDict()
    lock = RLock()
    """The root of a scan is checked in a thread."""

    def worked_out(playbook: Playbook) -> T:
        if after is not None:
            lines = (pair for pair in reversed(known.values()) if pair[0].name == playbook.name)
            earlier = next(lines, None)
            result = after(*earlier, playbook) if earlier is not None else None
            if result is not None:
                return result
        return work(playbook)

    @wraps(work)
    def remembered(playbook: Playbook) -> T:
        # The cache keeps the object alive, so no other object has its id.
        key = id(playbook)
        with lock:
            if key not in known:
                known[key] = playbook, worked_out(playbook)
                while len(known) > VERSIONS_KEPT:
                    known.popitem(last=False)
            known.move_to_end(key)
            return known[key][1]

    return remembered
