"""Pairs of texts with similar embeddings; pure."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import dist, hypot, sqrt

Pair = tuple[str, str]
"""Two ids in order."""


def near_pairs(vectors: Mapping[str, Sequence[float]], similarity: float) -> dict[Pair, float]:
    """Return the pairs whose cosine similarity is at least ``similarity``, with their similarity.

    Zero vectors, and vectors of an unusual length, are in no pair.
    """
    units = {name: unit for name, vector in sorted(vectors.items()) if (unit := _unit(vector))}
    # The distance of unit vectors determines the cosine, and is a hundred times as fast as a sum of products.
    farthest = sqrt(max(0.0, 2 - 2 * similarity)) + 1e-9
    distances = (
        ((first, second), dist(units[first], units[second]))
        for first, second in combinations(units, 2)
        if len(units[first]) == len(units[second])
    )
    return {pair: 1 - distance * distance / 2 for pair, distance in distances if distance <= farthest}


def _unit(vector: Sequence[float]) -> tuple[float, ...]:
    length = hypot(*vector)
    return tuple(part / length for part in vector) if length else ()
