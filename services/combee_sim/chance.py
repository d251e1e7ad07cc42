"""Chance as a hash of its causes: the same call has the same luck, regardless of earlier calls."""

from combee_schemas.digests import digest


def draw(*causes: str | int) -> float:
    """Return a number in [0, 1) fixed by its causes."""
    return int.from_bytes(digest("sim", *causes)[:7], "big") / (1 << 56)
