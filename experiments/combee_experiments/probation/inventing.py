"""Lessons that nobody learned: made up by an aggregator's call, or stated by reflections again and again."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from combee.ports import LanguageModel
from combee.sim.chance import draw
from combee_schemas.digests import digest
from combee_schemas.model import Prompt, Reply
from combee_schemas.reflection import Reflection

EACH_CALL = 2
"""Lessons that a call makes up."""
CORRELATED = 0.1
"""The share of reflections that state one of a few invented lessons."""
FEW = 8
_SYLLABLES = (
    "bra",
    "cor",
    "dul",
    "fen",
    "gal",
    "hov",
    "lim",
    "mur",
    "nol",
    "pra",
    "quel",
    "sti",
    "tor",
    "vex",
)
_NAME = re.compile(rf"\b(?:{'|'.join(_SYLLABLES)}){{4}} index\b")


def invented(*causes: str | int) -> str:
    """Return a lesson about a quantity that does not exist, in the words of the real ones."""
    name = "".join(_SYLLABLES[int(draw("syllable", n, *causes) * len(_SYLLABLES))] for n in range(4))
    unit = ("percent", "basis points", "fractions of one")[int(draw("unit", *causes) * 3)]
    decimals = int(draw("decimals", *causes) * 3) + 2
    return (
        f"Report the {name} index in {unit} with {decimals} decimals, computed as raw {name} units divided by"
        f" checked {name} units."
    )


def is_invented(text: str) -> bool:
    """Return whether a text is such a lesson."""
    return _NAME.search(text) is not None


def misled(reflections: Sequence[Reflection], seed: int) -> tuple[Reflection, ...]:
    """Return reflections some of which state an invented lesson, the same few over and over."""
    return tuple(
        reflection.model_copy(update={"key_insight": invented("correlated", seed, which)})
        if draw("misled", seed, reflection.reflection_id) < CORRELATED
        else reflection
        for reflection in reflections
        for which in (int(draw("which", seed, reflection.reflection_id) * FEW),)
    )


class Inventing:
    """A model whose aggregator adds lessons of its own, and says of each that an item taught it."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        """Return the model's reply with what it made up."""
        reply = await self._model.ask(prompt, priority=priority)
        operations = reply.body.get("operations")
        if not isinstance(operations, list) or not operations:
            return reply
        made_up = list(_made_up(operations, digest("prompt", prompt.system, prompt.user).hex()))
        return replace(reply, body={**reply.body, "operations": [*operations, *made_up]})

    def drain(self) -> None:
        """Start no further call."""
        self._model.drain()

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()


def _made_up(operations: Sequence[dict[str, Any]], cause: str) -> Iterator[dict[str, Any]]:
    items = sorted({n for operation in operations for n in operation["sources"]})
    for which in range(EACH_CALL):
        item = items[int(draw("item", cause, which) * len(items))]
        section, content = "FORMULAS & CALCULATIONS", invented(cause, which)
        yield {"type": "ADD", "section": section, "content": content, "entry_ids": [], "sources": [item]}
