"""Lessons of the stand-in, and its replies as a curator in full words."""

from collections.abc import Mapping
from typing import Any

from combee.core.playbook.operations import in_words
from combee_sim.roles.reading import Reading, read

FORMULA = (
    "Operating Margin: compute it with Operating Margin = (Operating Income / Revenue) × 100 "
    "and give a bare percentage number, not a fraction, to 2 decimals."
)
TAG = "Use the tag LongTermDebt for the entity in a sentence that states the long term debt."


def in_full(reply: Mapping[str, Any], asked: Mapping[str, Any] | Reading) -> dict[str, Any]:
    """Return a reply to a request in which no operation has the words of an item by its number."""
    reading = asked if isinstance(asked, Reading) else read(asked)
    words = {item.n: item.lesson for item in reading.items()}
    return dict(in_words(reply, [words.get(n, "") for n in range(1, max(words, default=0) + 1)]))
