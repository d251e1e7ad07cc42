"""What follows from a version alone, worked out once for all calls that are made on it.

A batch asks about one version many times: for every group, and for every combine. Rendering it, and finding out what
its entries say, costs by the size of the playbook, so that must not happen in each call.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import ReferenceType, ref

from combee.core.playbook.similarity import Index
from combee_schemas.playbook import Playbook

T = TypeVar("T")

VERSIONS_KEPT = 64
"""Of so many versions in memory at most; of a version that is in memory no longer nothing is kept."""


def once_per_version(work: Callable[[Playbook], T]) -> Callable[[Playbook], T]:
    """Return ``work`` with a memory; its result belongs to all who ask, so nobody may change it.

    A version is known by its object: to compare versions would cost by their size, too.
    """
    known: OrderedDict[int, tuple[ReferenceType[Playbook], T]] = OrderedDict()

    @wraps(work)
    def remembered(playbook: Playbook) -> T:
        key = id(playbook)
        place = known.get(key)
        if place is None or place[0]() is not playbook:
            place = known[key] = ref(playbook, lambda _gone: known.pop(key, None) and None), work(playbook)
            while len(known) > VERSIONS_KEPT:
                known.popitem(last=False)
        return place[1]

    return remembered


@once_per_version
def index_of(playbook: Playbook) -> Index:
    """Return what the entries of a version say; for changes take a copy."""
    index = Index()
    for entry in playbook.entries:
        index.put(entry.id, entry.content)
    return index
