"""The scan tree: number of nodes per level, parents and children."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from combee.core.names import identity

MAX_WIDTH = 20_000
"""Maximum number of leaves, more than any batch has."""
PROPOSED = 4
"""Input tokens per output token of a node, estimated: copies meet, and a lesson is shorter than its story."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of a batch's tree, with its way up."""

    id: str
    level: int
    index: int
    parent: "Node | None"
    """None: it is the root."""


def node_at(batch_id: str, widths: tuple[int, ...], level: int, index: int) -> Node:
    """Return a node of a batch's tree."""
    above = None
    if not is_root(widths, level):
        above = node_at(batch_id, widths, level + 1, parent_index(widths, level, index))
    return Node(id=identity.node_id(batch_id, level, index), level=level, index=index, parent=above)


def plan_widths(
    groups: int, fan_in: int, max_levels: int, *, tokens: int = 0, most: int = 0
) -> tuple[int, ...]:
    """Return nodes per level, leaves first, 1 last: two levels as in the paper if both bounds allow.

    No node takes more than ``fan_in`` children or reads more than ``most`` tokens if the leaves propose ``tokens``.
    If ``max_levels`` would not suffice, first the token bound gives way, then the fan-in.
    """
    if groups == 1:
        return (1,)
    if max_levels < 2:  # noqa: PLR2004 - a tree with several leaves has at least two levels
        raise ValueError("several groups need max_levels ≥ 2")
    most = max(1, min(most, tokens))
    while len(widths := _widths(groups, fan_in, tokens, most)) > max_levels:
        if most < tokens:
            most += most // 4 + 1
        else:
            fan_in += 1
    return widths


def _widths(groups: int, fan_in: int, tokens: int, most: int) -> tuple[int, ...]:
    widths = [groups]
    while widths[-1] > 1:
        enough = max(ceil(widths[-1] / fan_in), ceil(tokens / most))
        widths.append(min(enough, ceil(widths[-1] / 2)))
        tokens = ceil(tokens / PROPOSED)
    return tuple(widths)


def reads(widths: tuple[int, ...], tokens: int) -> tuple[int, ...]:
    """Return the approximate tokens read by a node of each level above the leaves, which propose ``tokens``."""
    return tuple(ceil(tokens / PROPOSED**level / width) for level, width in enumerate(widths[1:]))


def is_valid(widths: tuple[int, ...], max_levels: int) -> bool:
    """Return whether widths describe a tree: they fall to one root, and the first is not absurd."""
    shrinking = all(below > above for below, above in pairwise(widths))
    return 1 <= len(widths) <= max_levels and widths[-1] == 1 and shrinking and widths[0] <= MAX_WIDTH


def is_root(widths: tuple[int, ...], level: int) -> bool:
    """Return whether nodes of ``level`` have no parent."""
    return level == len(widths) - 1


def parent_index(widths: tuple[int, ...], level: int, index: int) -> int:
    """Return the parent's index one level up; children are contiguous and balanced (± 1)."""
    return index * widths[level + 1] // widths[level]


def size_below(widths: tuple[int, ...], level: int, index: int) -> int:
    """Return the number of nodes in a sub-tree, its root included."""
    if level == 0:
        return 1
    return 1 + sum(size_below(widths, level - 1, child) for child in child_indices(widths, level, index))


def ancestor_index(widths: tuple[int, ...], level: int, index: int, above: int) -> int:
    """Return the index, on level ``above``, of a node's ancestor (or of the node itself)."""
    for step in range(level, above):
        index = parent_index(widths, step, index)
    return index


def is_left_out(widths: tuple[int, ...], leaf: int, left_out: Collection[int]) -> bool:
    """Return whether a leaf is below one of these children of the root."""
    return ancestor_index(widths, 0, leaf, len(widths) - 2) in left_out


def child_indices(widths: tuple[int, ...], level: int, index: int) -> tuple[int, ...]:
    """Return the indices, one level down, of the children of a node of ``level`` ≥ 1."""
    below, own = widths[level - 1], widths[level]
    return tuple(range(-(-index * below // own), -(-(index + 1) * below // own)))
