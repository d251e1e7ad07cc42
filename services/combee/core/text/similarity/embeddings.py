"""Texts with similar embeddings, and from where on the embeddings of a model count; pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


# ---- from where on they count


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From where on the embeddings of a model count; models differ in it."""

    meaning: float = 0.98
    """Cosine at or above which two texts are one lesson; the default counts only nearly identical texts, for a model
    that was not measured (``combee doctor --embeddings``)."""


UNMEASURED = Thresholds()
_MEASURED = re.compile(r"(?P<model>.+)@(?P<meaning>\d*\.\d+)")


def model_and_thresholds(embeddings: str) -> tuple[str, Thresholds]:
    """Return an embedding model's name and thresholds, written as MODEL, or MODEL@0.9 once it was measured.

    Raises
    ------
    ValueError
        If no cosine can have the threshold.
    """
    measured = _MEASURED.fullmatch(embeddings.strip())
    if measured is None:
        return embeddings.strip(), UNMEASURED
    meaning = float(measured["meaning"])
    if not 0 < meaning <= 1:
        raise ValueError(f"{measured['meaning']} is not a threshold: it is a cosine, above 0 and at most 1.0")
    return measured["model"], Thresholds(meaning=meaning)
