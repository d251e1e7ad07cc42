"""Entries whose embeddings are near each other, compared in the background: the shuffler never waits for a server.

Shuffle asks because its manifest records the clusters for scan, publish, a replay and the next owner.
A server that gives no embeddings is logged and recorded, and near-duplicates are found by their words alone.
"""

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import structlog

from combee.adapters.ports import CombeeError, Embedder
from combee.core.text.similarity.embeddings import Pair, near_pairs
from combee_schemas.base import NOTHING_SPENT, Usage
from combee_schemas.playbook import Entry

logger = structlog.get_logger()

SIMILARITY = 0.85
"""Minimum cosine at which two entries are shown to the model as alike; the model decides whether they are."""
VECTORS_KEPT = 2_000
"""Cache size: vectors of the latest texts, by hash (25 MB at 3,072 dimensions)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """Pairs of entries that embeddings find alike; ``embeddings`` is the model, or why there are none."""

    pairs: Mapping[Pair, float] = field(default_factory=dict)
    embeddings: str = ""
    usage: Usage = NOTHING_SPENT
    contents: Mapping[str, str] = field(default_factory=dict)
    """The compared contents, by entry."""


NOTHING = Alike()


class Neighbours:
    """Embeds the entries of playbooks to be consolidated; without an embedder it finds no pairs."""

    def __init__(
        self,
        embedder: Embedder | None = None,
        *,
        model: str = "",
        similarity: float = SIMILARITY,
    ) -> None:
        self._embedder = embedder
        self._model = model
        self._similarity = similarity
        self.on_compared: Callable[[], None] = lambda: None
        """Called when a comparison is ready."""
        self._asked: dict[str, Mapping[str, str]] = {}
        """Playbook → contents by entry that nobody has compared yet."""
        self._alike: dict[str, Alike] = {}
        self._vectors: OrderedDict[bytes, array[float]] = OrderedDict()
        self._wake = asyncio.Event()

    def of(self, playbook: str, entries: Sequence[Entry]) -> Alike | None:
        """Return the pairs among a playbook's entries; None: they are being compared, and ``on_compared`` tells when.

        Entries that came or changed meanwhile are compared by their words alone: a busy playbook must not
        wait for ever.
        """
        if self._embedder is None or len(entries) < 2:  # noqa: PLR2004 - a pair
            return NOTHING
        contents = {entry.id: entry.content for entry in entries}
        alike = self._alike.pop(playbook, None)
        if alike is None:
            self._asked.setdefault(playbook, contents)
            self._wake.set()
            return None
        same = {entry_id for entry_id, content in alike.contents.items() if contents.get(entry_id) == content}
        kept = {pair: share for pair, share in alike.pairs.items() if same.issuperset(pair)}
        return Alike(pairs=kept, embeddings=alike.embeddings, usage=alike.usage)

    async def run(self) -> None:
        """Compare requested playbooks, for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._asked:
                playbook, contents = next(iter(self._asked.items()))
                self._alike[playbook] = await self._compared(playbook, contents)
                del self._asked[playbook]
                self.on_compared()

    async def _compared(self, playbook: str, contents: Mapping[str, str]) -> Alike:
        try:
            vectors, usage = await self._embedded(contents)
        except CombeeError as error:
            reason = str(error)
            logger.warning(
                "no_embeddings",
                playbook=playbook,
                model=self._model,
                reason=reason,
                instead="near-duplicates are found by their words alone",
            )
            return Alike(embeddings=f"none of {self._model} ({reason})")
        # In a thread: a large playbook has 100,000 pairs.
        pairs = await asyncio.to_thread(near_pairs, vectors, self._similarity)
        return Alike(pairs=pairs, embeddings=self._model, usage=usage, contents=contents)

    async def _embedded(self, contents: Mapping[str, str]) -> tuple[dict[str, Sequence[float]], Usage]:
        """Return a vector for each entry; vectors of unknown texts are requested."""
        assert self._embedder is not None  # noqa: S101 - of() asks for nothing then
        hashes = {entry_id: sha256(content.encode()).digest() for entry_id, content in contents.items()}
        vectors = {text: self._vectors[text] for text in hashes.values() if text in self._vectors}
        new = {text: contents[entry_id] for entry_id, text in hashes.items() if text not in vectors}
        usage = NOTHING_SPENT
        if new:
            embedded = await self._embedder.embed(list(new.values()))
            usage = embedded.usage
            vectors |= {text: array("f", vector) for text, vector in zip(new, embedded.vectors, strict=True)}
        for text, vector in vectors.items():
            self._vectors[text] = vector
            self._vectors.move_to_end(text)
        while len(self._vectors) > VECTORS_KEPT:
            self._vectors.popitem(last=False)
        return {entry_id: vectors[text] for entry_id, text in hashes.items()}, usage
