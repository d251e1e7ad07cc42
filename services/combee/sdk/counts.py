"""What became of what an agent handed over, in numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Counts since the client was made, in messages."""

    published: int = 0
    """Taken into the buffer."""
    delivered: int = 0
    """Acknowledged by the log."""
    waiting: int = 0
    """In the buffer, not acknowledged."""
    held: int = 0
    """Traces that wait for their outcome."""
    dropped: int = 0
    """Not delivered and never to be: no room, no message, or refused."""
    redacted: Mapping[str, int] = field(default_factory=dict)
    """Finds by kind that were taken out before sending."""

    @property
    def is_complete(self) -> bool:
        """Whether all that was handed over has been delivered."""
        return not (self.waiting or self.held or self.dropped)
