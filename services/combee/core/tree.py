"""The scan tree: how many nodes a level has, who a node's parent and children are."""

from itertools import pairwise
from math import ceil

MAX_WIDTH = 10_000
"""More leaves than any batch has."""


def plan_widths(groups: int, fan_in: int, max_levels: int) -> tuple[int, ...]:
    """Return nodes per level, leaves first, 1 last: two levels as in the paper while ``fan_in`` allows.

    Where ``max_levels`` would not suffice, nodes take more children instead of the tree growing.
    """
    if groups == 1:
        return (1,)
    if max_levels < 2:  # noqa: PLR2004 - a tree with several leaves has at least two levels
        raise ValueError("several groups need max_levels ≥ 2")
    while _height(groups, fan_in) > max_levels:
        fan_in += 1
    widths = [groups]
    while widths[-1] > 1:
        widths.append(ceil(widths[-1] / fan_in))
    return tuple(widths)


def _height(groups: int, fan_in: int) -> int:
    levels = 1
    while groups > 1:
        groups = ceil(groups / fan_in)
        levels += 1
    return levels


def is_valid(widths: tuple[int, ...], max_levels: int) -> bool:
    """Return whether these can be a tree's widths: fewer and fewer nodes up to one root, none absurd."""
    shrinking = all(below > above for below, above in pairwise(widths))
    return 1 <= len(widths) <= max_levels and widths[-1] == 1 and shrinking and widths[0] <= MAX_WIDTH


def is_root(widths: tuple[int, ...], level: int) -> bool:
    """Return whether nodes of ``level`` have no parent."""
    return level == len(widths) - 1


def parent_index(widths: tuple[int, ...], level: int, index: int) -> int:
    """Return the parent's index one level up; children are contiguous and balanced (± 1)."""
    return index * widths[level + 1] // widths[level]


def child_indices(widths: tuple[int, ...], level: int, index: int) -> tuple[int, ...]:
    """Return the indices, one level down, of the children of a node of ``level`` ≥ 1."""
    below = widths[level - 1]
    return tuple(i for i in range(below) if parent_index(widths, level - 1, i) == index)
