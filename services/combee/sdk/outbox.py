"""What waits to be sent: bounded by count and by bytes, filled by any thread, emptied by the background loop."""

import threading
from collections import deque
from collections.abc import Mapping, Sequence

from combee.sdk.transport import Sent

OVERHEAD_BYTES = 512
"""What a message weighs beside its texts, about."""


def weight(message: Sent) -> int:
    """Return about how many bytes a message takes; cheap, for the caller waits for it."""
    total = OVERHEAD_BYTES
    for value in message.__dict__.values():
        if isinstance(value, str):
            total += len(value)
        elif isinstance(value, Mapping):
            total += sum(len(name) + len(text) for name, text in value.items())
    return total


class Outbox:
    """A buffer that refuses rather than grows; messages stay until they are acknowledged."""

    def __init__(self, *, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._waiting: deque[tuple[Sent, int]] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self.taken = 0
        """Messages that found room."""

    def put(self, message: Sent) -> bool:
        """Take a message; False if there is no room for it."""
        size = weight(message)
        with self._lock:
            full = len(self._waiting) >= self._max_messages
            if full or (self._waiting and self._bytes + size > self._max_bytes):
                return False
            self._waiting.append((message, size))
            self._bytes += size
            self.taken += 1
        return True

    def first(self, most: int, most_bytes: int) -> Sequence[Sent]:
        """Return the oldest messages, one at least if there are any; they stay in."""
        found: list[Sent] = []
        total = 0
        with self._lock:
            for message, size in self._waiting:
                total += size
                if len(found) == most or (found and total > most_bytes):
                    break
                found.append(message)
        return found

    def done(self, count: int) -> None:
        """Forget the oldest ``count``."""
        with self._lock:
            for _ in range(count):
                self._bytes -= self._waiting.popleft()[1]

    def __len__(self) -> int:
        return len(self._waiting)
