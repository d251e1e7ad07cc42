"""Windows as an onlooker sees them: which offsets no manifest has covered yet."""

from collections import deque


class Windows:
    """Reflections per playbook that wait for a batch, from keys and offsets alone."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[tuple[int, int]]] = {}
        self._through: dict[str, int] = {}

    def arrived(self, playbook: str, offset: int, at_ms: int) -> None:
        """Note a reflection, in offset order per playbook."""
        if offset > self._through.get(playbook, -1):
            self._waiting.setdefault(playbook, deque()).append((offset, at_ms))

    def closed(self, playbook: str, through_offset: int) -> None:
        """Note a manifest: everything up to this offset is in a batch."""
        through = self._through[playbook] = max(through_offset, self._through.get(playbook, -1))
        waiting = self._waiting.get(playbook, ())
        while waiting and waiting[0][0] <= through:
            waiting.popleft()

    def count(self, playbook: str) -> int:
        """Return how many wait."""
        return len(self._waiting.get(playbook, ()))

    def since_ms(self, playbook: str) -> int | None:
        """Return when the oldest that waits was written."""
        waiting = self._waiting.get(playbook)
        return waiting[0][1] if waiting else None
