"""Pairs of texts with similar embeddings; pure."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import dist, hypot, sqrt

Vector = Sequence[float]
Pair = tuple[str, str]
"""Two ids in order."""


def near_pairs(vectors: Mapping[str, Vector], similarity: float) -> dict[Pair, float]:
    """Return the pairs whose cosine similarity is at least ``similarity``, with their similarity.

    Zero vectors, and vectors of an unusual length, are in no pair.
    """
    units = {name: own for name, vector in sorted(vectors.items()) if (own := unit(vector))}
    farthest = distance_at(similarity)
    distances = (
        ((first, second), dist(units[first], units[second]))
        for first, second in combinations(units, 2)
        if len(units[first]) == len(units[second])
    )
    return {pair: 1 - distance * distance / 2 for pair, distance in distances if distance <= farthest}


def cosine_of(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """Return the cosine of two unit vectors of one length."""
    distance = dist(one, other)
    return 1 - distance * distance / 2


def distance_at(cosine: float) -> float:
    """Return the distance of two unit vectors with a cosine: it is a hundred times as fast as a sum of products."""
    return sqrt(max(0.0, 2 - 2 * cosine)) + 1e-9


def unit(vector: Vector) -> tuple[float, ...]:
    """Return a vector at length 1; () if it has no length."""
    length = hypot(*vector)
    return tuple(part / length for part in vector) if length else ()
