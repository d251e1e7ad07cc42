"""The stand-in as summariser: a line for each lesson it keeps, by the same law as the aggregator."""

from typing import Any

from combee.sim.family.lessons import key
from combee.sim.law.law import LAW, Law
from combee.sim.roles.aggregator import keep
from combee.sim.roles.reading import Reading


def summarise(reading: Reading, seed: int, law: Law = LAW) -> dict[str, Any]:
    """Return the lessons kept of a call's reflections or summary lines, each verbatim, once."""
    read, kept = keep(reading, seed, law)
    said = {key(item.lesson): item.lesson for item in reversed(read.items)}
    return {
        "reasoning": f"Simulated: {len(kept)} of {len(read.distinct)} distinct lessons kept.",
        "summary_lines": [said[lesson] for lesson in kept],
    }
