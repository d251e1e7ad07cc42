"""A checkpoint's knowledge of earlier records, for the ledger."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from combee.core.log.ledger.checkpoint import NOTHING, Checkpoint, mark, unpacked
from combee.core.log.ledger.dead_letters import Key, Place

REFLECTION, TRACE, COMMAND = "reflection", "trace", "command"
"""Kinds of ids."""


class Carried:
    """A checkpoint's knowledge of earlier records; ``behind`` collects references to closed ones."""

    def __init__(self, checkpoint: Checkpoint = NOTHING) -> None:
        self.checkpoint = checkpoint
        self.behind: list[str] = []
        self._open = {
            (topic, partition): frozenset(offsets)
            for topic, partitions in checkpoint.open.items()
            for partition, offsets in partitions.items()
        }
        self.marks = unpacked(checkpoint.met)

    def is_new(self, topic: str, place: Place) -> bool:
        """Return whether a record was not read before."""
        partition, offset = place
        return offset >= self.checkpoint.next.get(topic, {}).get(partition, 0)

    def refer(self, topic: str, place: Place, by: str) -> None:
        """Note a new record that names another one; a closed one cannot be judged again."""
        if not self.is_new(topic, place) and place[1] not in self._open.get((topic, place[0]), ()):
            self.behind.append(f"{by} names {topic}[{place[0]}]@{place[1]}")

    def meet(self, kind: str, playbook: str, identities: Iterable[str], by: str) -> None:
        """Note the ids of a new record; the first record under a closed id is not read again."""
        if self.marks and any(mark(kind, playbook, identity) in self._met for identity in identities):
            self.behind.append(f"{by} has the id of an earlier {kind}")

    @cached_property
    def _met(self) -> frozenset[int]:
        # Computed on demand: without new records the marks are not needed.
        return frozenset(self.marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One record of ``reflections`` that was read."""

    place: Place
    playbook: str
    ids: frozenset[str]
    """The ids that make it a repeat."""
    key: Key
    """The key of its content."""
