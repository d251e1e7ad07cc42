"""Entries whose embeddings are near each other, compared in the background: the shuffler never waits for a server.

Shuffle compares them, because its manifest records the clusters for scan, publish, a replay and the next owner. If
the server gives no embeddings, that is logged and recorded, and near-duplicates are found by their words alone.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from combee.core.text.similarity.embeddings import Pair, near_pairs
from combee.process.worker.vectors import Vectors
from combee_schemas.base import NOTHING_SPENT, Usage
from combee_schemas.playbook import Entry

SIMILARITY = 0.85
"""Minimum cosine at which two entries are shown to the model as alike; the model decides whether they are."""


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

    def __init__(self, vectors: Vectors | None = None) -> None:
        self._vectors = vectors or Vectors()
        self.on_compared: Callable[[], None] = lambda: None
        """Called when a comparison is ready."""
        self._asked: dict[str, Mapping[str, str]] = {}
        """Playbook → contents by entry, still to be compared."""
        self._alike: dict[str, Alike] = {}
        self._wake = asyncio.Event()

    @property
    def model(self) -> str:
        """The embedding model with its threshold; empty: none is configured."""
        return self._vectors.model

    def of(self, playbook: str, entries: Sequence[Entry]) -> Alike | None:
        """Return the pairs among a playbook's entries; None: the comparison runs, and ends with ``on_compared``.

        Entries that are new or changed since it began have no pairs: otherwise a busy playbook would wait for ever.
        """
        if not self.model or len(entries) < 2:  # noqa: PLR2004 - a pair
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
                self._alike[playbook] = await self._compared(contents)
                del self._asked[playbook]
                self.on_compared()

    async def _compared(self, contents: Mapping[str, str]) -> Alike:
        embedded = await self._vectors.of(contents.values())
        vectors = {
            entry_id: embedded.vectors[content]
            for entry_id, content in contents.items()
            if content in embedded.vectors
        }
        # In a thread: a large playbook has 100,000 pairs.
        pairs = await asyncio.to_thread(near_pairs, vectors, SIMILARITY)
        return Alike(pairs=pairs, embeddings=embedded.by, usage=embedded.usage, contents=contents)
