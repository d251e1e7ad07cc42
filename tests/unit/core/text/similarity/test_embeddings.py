"""Which embeddings are near each other."""

from math import cos, radians, sin

import pytest

from combee.core.text.similarity.embeddings import near_pairs


def at(degrees: float, length: float = 1.0) -> list[float]:
    return [length * cos(radians(degrees)), length * sin(radians(degrees))]


def test_what_has_nearly_one_direction_is_near_however_long() -> None:
    found = near_pairs({"b": at(0), "a": at(20, length=7), "c": at(90)}, 0.9)
    assert found == {("a", "b"): pytest.approx(cos(radians(20)))}


def test_the_bound_itself_is_near() -> None:
    assert near_pairs({"a": at(0), "b": at(60)}, 0.5)
    assert not near_pairs({"a": at(0), "b": at(61)}, 0.5)
    assert near_pairs({"a": [0.3, 0.1], "b": [0.3, 0.1]}, 1.0)


def test_what_cannot_be_compared_is_near_to_nothing() -> None:
    assert near_pairs({"a": [0.0, 0.0], "b": at(0), "c": [1.0, 0.0, 0.0]}, 0.1) == {}
