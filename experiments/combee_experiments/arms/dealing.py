"""Other ways to deal copies into groups than the product's, to see what each of its parts is worth."""

from collections.abc import Sequence
from itertools import pairwise
from random import Random


def unshuffled(reflections: int, copies: int, groups: int, seed: int) -> Sequence[Sequence[int]]:
    """Cut the reflections as they came, all once and then all again, into groups that differ by at most one."""
    del seed
    return _cut(list(range(reflections)) * copies, groups)


def shuffled(reflections: int, copies: int, groups: int, seed: int) -> Sequence[Sequence[int]]:
    """Shuffle all copies together and cut: as the paper says it, so that copies may meet in a group."""
    order = list(range(reflections)) * copies
    Random(seed).shuffle(order)  # noqa: S311 - reproducible, not secret
    return _cut(order, groups)


def _cut(order: Sequence[int], groups: int) -> Sequence[Sequence[int]]:
    bounds = [len(order) * n // groups for n in range(groups + 1)]
    return [order[start:end] for start, end in pairwise(bounds)]
