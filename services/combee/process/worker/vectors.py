"""Embeddings of texts, cached by text; without an embedding model, or where it fails, there are none."""

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import structlog

from combee.adapters.ports import CombeeError, Embedder
from combee_schemas.base import NOTHING_SPENT, Usage

logger = structlog.get_logger()

KEPT = 4_000
"""Cache size: vectors of the latest texts, by hash (50 MB at 3,072 dimensions)."""
AT_ONCE = 256
"""Maximum number of texts handed to the embedder at once; a failure later on leaves the earlier vectors cached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Embeddings:
    """Vectors by text: of all texts that were asked for, or none."""

    vectors: Mapping[str, Sequence[float]] = field(default_factory=dict)
    usage: Usage = NOTHING_SPENT
    by: str = ""
    """The embedding model, or why there are no vectors; empty: no model is configured."""


class Vectors:
    """The vectors of one embedding model; without an embedder there are none."""

    def __init__(self, embedder: Embedder | None = None, model: str = "") -> None:
        self._embedder = embedder
        self.model = model if embedder else ""
        """The configured model with its threshold."""
        self._cache: OrderedDict[bytes, array[float]] = OrderedDict()

    async def of(self, texts: Iterable[str]) -> Embeddings:
        """Return the vectors of texts; only those of unknown texts are requested, each once."""
        if self._embedder is None:
            return Embeddings()
        hashes = {text: sha256(text.encode(errors="surrogatepass")).digest() for text in texts}
        vectors = {text: self._cache[key] for text, key in hashes.items() if key in self._cache}
        usage = NOTHING_SPENT
        try:
            for part in _parts([text for text in hashes if text not in vectors]):
                embedded = await self._embedder.embed(part)
                usage += embedded.usage
                new = {text: array("f", vector) for text, vector in zip(part, embedded.vectors, strict=True)}
                vectors |= new
                self._keep({hashes[text]: vector for text, vector in new.items()})
        except CombeeError as error:
            reason = str(error)
            logger.warning(
                "no_embeddings",
                model=self.model,
                reason=reason,
                instead="texts are compared by their words alone",
            )
            return Embeddings(usage=usage, by=f"none of {self.model} ({reason})")
        self._keep({hashes[text]: vector for text, vector in vectors.items()})
        return Embeddings(vectors=vectors, usage=usage, by=self.model)

    def _keep(self, vectors: Mapping[bytes, "array[float]"]) -> None:
        for key, vector in vectors.items():
            self._cache[key] = vector
            self._cache.move_to_end(key)
        while len(self._cache) > KEPT:
            self._cache.popitem(last=False)


def _parts(texts: Sequence[str]) -> Iterable[Sequence[str]]:
    return (texts[start : start + AT_ONCE] for start in range(0, len(texts), AT_ONCE))
