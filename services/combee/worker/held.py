"""Records held back while their playbook is paused: only where they stand is kept, the log has the rest."""

from collections.abc import Callable, Collection

from combee.ports import Record, TopicPartition

HELD_MOST = 10_000
Place = tuple[TopicPartition, int]


class Held:
    """Places by playbook, oldest first, at most so many in all."""

    def __init__(self, most: int = HELD_MOST) -> None:
        self._most = most
        self._places: dict[str, dict[Place, None]] = {}

    def __len__(self) -> int:
        """Return how many records are held."""
        return sum(map(len, self._places.values()))

    def add(self, playbook: str, record: Record) -> bool:
        """Hold a record; False if there is no room."""
        if len(self) >= self._most:
            return False
        self._places.setdefault(playbook, {})[record.source, record.offset] = None
        return True

    def on(self, sources: Collection[TopicPartition]) -> int:
        """Return how many records of these partitions are held."""
        return sum(source in sources for places in self._places.values() for source, _ in places)

    def due(self, paused: Collection[str], room: int) -> dict[TopicPartition, list[int]]:
        """Return up to ``room`` places of playbooks that are paused no longer; they stay until forgotten."""
        found: dict[TopicPartition, list[int]] = {}
        free = [place for name, places in self._places.items() if name not in paused for place in places]
        for source, offset in free[: max(0, room)]:
            found.setdefault(source, []).append(offset)
        return found

    def forget(self, source: TopicPartition, offsets: Collection[int]) -> None:
        """Let go of records that are worked on again."""
        gone = {(source, offset) for offset in offsets}
        self._keep(lambda place: place not in gone)

    def keep(self, sources: Collection[TopicPartition]) -> None:
        """Let go of everything on other partitions: it is another worker's."""
        self._keep(lambda place: place[0] in sources)

    def _keep(self, wanted: Callable[[Place], bool]) -> None:
        kept = {n: {p: None for p in places if wanted(p)} for n, places in self._places.items()}
        self._places = {name: places for name, places in kept.items() if places}
