"""Proposals by topic: which of them one call of a combine reads; pure, and the same on every machine.

What says the same word for word, or names the same entry, is always in one part. What is alike comes together, the
most alike first, as far as a part's tokens allow. The rest goes where there is most room.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import sqrt

from combee.core.prompt import CHARS_PER_TOKEN
from combee.core.similarity.overlap import said_words
from combee.core.similarity.relevance import rarity
from combee.core.similarity.wording import wording
from combee_schemas.scan import Operation

FRAME_CHARS = 60
"""About what a prompt writes around a proposal."""
RARE, SHARE = 12, 8
"""Texts are compared if they share a word that at most so many have, or one in so many of all."""


def by_topic(proposals: Sequence[Operation], part_tokens: int) -> tuple[tuple[int, ...], ...]:
    """Return the places of the proposals of each part, in order: as few parts as hold ``part_tokens`` on average."""
    sizes = list(map(_tokens, proposals))
    count = -(-sum(sizes) // part_tokens)
    if count <= 1:
        return (tuple(range(len(proposals))),)
    clusters = _Clusters(sizes)
    for place, other in _same(proposals):
        clusters.join(place, other)
    for place, other in _alike(proposals):
        clusters.join(place, other, most=part_tokens)
    parts: list[list[int]] = [[] for _ in range(count)]
    loads = [0] * count
    for load, places in clusters.heaviest_first():
        emptiest = loads.index(min(loads))
        parts[emptiest] += places
        loads[emptiest] += load
    return tuple(sorted(tuple(sorted(places)) for places in parts if places))


def _tokens(proposal: Operation) -> int:
    said = (proposal.section, proposal.content, *proposal.entry_ids)
    return (FRAME_CHARS + sum(map(len, said))) // CHARS_PER_TOKEN


class _Clusters:
    """Places that are to be in one part; at first each is alone."""

    def __init__(self, sizes: Iterable[int]) -> None:
        self._places = {place: [place] for place, _ in enumerate(sizes)}
        self._loads = dict(enumerate(sizes))
        self._cluster = {place: place for place in self._places}

    def join(self, place: int, other: int, *, most: int | None = None) -> None:
        """Make the clusters of two places one, unless they are more than ``most`` together."""
        kept, left = self._cluster[place], self._cluster[other]
        load = self._loads[kept] + self._loads[left]
        if kept == left or (most is not None and load > most):
            return
        self._loads[kept] = load
        del self._loads[left]
        moved = self._places.pop(left)
        self._places[kept] += moved
        self._cluster.update(dict.fromkeys(moved, kept))

    def heaviest_first(self) -> list[tuple[int, list[int]]]:
        """Return the load and the places of each cluster."""
        clusters = ((load, sorted(self._places[cluster])) for cluster, load in self._loads.items())
        return sorted(clusters, key=lambda pair: (-pair[0], pair[1]))


def _same(proposals: Sequence[Operation]) -> Iterator[tuple[int, int]]:
    """Yield pairs of places that say the same word for word, or name the same entry."""
    first: dict[tuple[str, str], int] = {}
    for place, proposal in enumerate(proposals):
        names = [("entry", entry_id) for entry_id in proposal.entry_ids]
        if proposal.content:
            names.append(("text", wording(proposal.content).text))
        for name in names:
            yield first.setdefault(name, place), place


def _alike(proposals: Sequence[Operation]) -> list[tuple[int, int]]:
    """Return pairs of places whose different texts share words, by the cosine of the words' rarity, highest first."""
    texts = {wording(proposal.content).text: place for place, proposal in reversed([*enumerate(proposals)])}
    words = {place: sorted(said_words(proposals[place].content)) for place in sorted(texts.values())}
    having: dict[str, list[int]] = defaultdict(list)
    for place, said in words.items():
        for word in said:
            having[word].append(place)
    weights = {word: rarity(len(places), len(words)) ** 2 for word, places in having.items()}
    lengths = {place: sqrt(sum(weights[word] for word in said)) for place, said in words.items()}
    most = max(RARE, len(words) // SHARE)
    pairs: list[tuple[float, int, int]] = []
    for place, said in words.items():
        shared: dict[int, float] = defaultdict(float)
        for word in said:
            for other in having[word] if len(having[word]) <= most else ():
                if other > place:
                    shared[other] += weights[word]
        pairs += ((-both / lengths[place] / lengths[other], place, other) for other, both in shared.items())
    return [(place, other) for _, place, other in sorted(pairs)]
