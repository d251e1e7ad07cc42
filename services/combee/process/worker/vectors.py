"""Stub: embeddings of texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from combee.adapters.ports import Embedder
from combee_schemas.base import NOTHING_SPENT, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Embeddings:
    """Vectors by text."""

    vectors: Mapping[str, Sequence[float]] = field(default_factory=dict)
    usage: Usage = NOTHING_SPENT
    by: str = ""


class Vectors:
    """Embeds texts."""

    def __init__(self, embedder: Embedder | None = None, model: str = "") -> None:
        self._embedder = embedder
        self._model = model

    async def of(self, texts: Sequence[str]) -> Embeddings:
        """Return the embeddings of texts."""
        if self._embedder is None or not texts:
            return Embeddings()
        found = await self._embedder.embed(list(texts))
        vectors = dict(zip(texts, found.vectors, strict=True))
        return Embeddings(vectors=vectors, usage=found.usage, by=self._model)
