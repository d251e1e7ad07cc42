"""What follows from a version alone, worked out once for all calls that are made on it.

A batch asks about one version many times: for every group, and for every combine. Rendering it, and finding out what
its entries say, costs by the size of the playbook, so that must not happen in each call.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from combee_schemas.playbook import Playbook

T = TypeVar("T")

VERSIONS_KEPT = 24
"""Of so many versions, those asked about last; each is some megabytes where playbooks are full."""


def once_per_version(work: Callable[[Playbook], T]) -> Callable[[Playbook], T]:
    """Return ``work`` with a memory; its result belongs to all who ask, so nobody may change it.

    A version is known by its object: to compare versions would cost by their size, too.
    """
    known: OrderedDict[int, tuple[Playbook, T]] = OrderedDict()

    @wraps(work)
    def remembered(playbook: Playbook) -> T:
        # As long as it is remembered it lives, so no other object has its id.
        key = id(playbook)
        if key not in known:
            known[key] = playbook, work(playbook)
            while len(known) > VERSIONS_KEPT:
                known.popitem(last=False)
        known.move_to_end(key)
        return known[key][1]

    return remembered
