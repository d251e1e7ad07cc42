"""The stand-in's embeddings (simulated): wordings of one lesson are near each other, different lessons are far.

Real models separate less clearly: they put a lesson and its opposite near each other.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import sqrt
from typing import Any

from combee.adapters.ports import Embedded
from combee.core.text.prompt import estimate_tokens
from combee_schemas.base import Usage
from combee_sim.chance import draw
from combee_sim.family.lessons import key

EMBEDDING = "simulated-embedding"
DIMENSIONS = 64
WORDING = 0.3
"""Weight of the wording in a vector next to the lesson: two wordings have a cosine similarity of about 0.9."""


@lru_cache(maxsize=2_000)
def vector(text: str) -> tuple[float, ...]:
    """Return the embedding of a text."""
    lesson, wording = _direction("lesson", key(text)), _direction("wording", text)
    parts = [own + WORDING * other for own, other in zip(lesson, wording, strict=True)]
    return _unit(parts)


def _direction(*causes: str) -> tuple[float, ...]:
    return _unit([draw("embedding", n, *causes) - 0.5 for n in range(DIMENSIONS)])


def _unit(parts: Sequence[float]) -> tuple[float, ...]:
    length = sqrt(sum(part * part for part in parts))
    return tuple(part / length for part in parts)


def embeddings(body: Mapping[str, Any]) -> dict[str, Any]:
    """Answer an embeddings request like an OpenAI-compatible server.

    Raises
    ------
    ValueError
        If it names no texts.
    """
    given = body.get("input")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError("input must be a text, or a list of texts")
    tokens = sum(map(estimate_tokens, texts))
    return {
        "object": "list",
        "model": EMBEDDING,
        "data": [
            {"object": "embedding", "index": n, "embedding": vector(text)} for n, text in enumerate(texts)
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


class SimulatedEmbedder:
    """An ``Embedder`` that answers at once and never fails."""

    def __init__(self) -> None:
        self.texts = 0

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return the stand-in's vectors."""
        self.texts += len(texts)
        usage = Usage(calls=1, tokens_in=sum(map(estimate_tokens, texts)))
        return Embedded(vectors=[vector(text) for text in texts], usage=usage)

    async def close(self) -> None:
        """Do nothing; no resource is open."""
