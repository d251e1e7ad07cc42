"""Traces that wait for their outcome, each until its time is over."""

import threading
import time

from combee_schemas.trace import Trace

MOST = 1_000


class Held:
    """A bounded shelf of traces by id; any thread may use it."""

    def __init__(self) -> None:
        self._traces: dict[str, tuple[Trace, float]] = {}
        self._lock = threading.Lock()

    def put(self, trace: Trace, within_s: float) -> Trace | None:
        """Hold a trace; return the oldest one if there are too many now."""
        with self._lock:
            self._traces[trace.trace_id] = trace, time.monotonic() + within_s
            if len(self._traces) <= MOST:
                return None
            return self._traces.pop(next(iter(self._traces)))[0]

    def take(self, trace_id: str) -> Trace | None:
        """Return a trace and hold it no longer."""
        with self._lock:
            found = self._traces.pop(trace_id, None)
        return found[0] if found else None

    def due(self, *, everything: bool = False) -> list[Trace]:
        """Return the traces whose time is over, or all; they are held no longer."""
        now = time.monotonic()
        with self._lock:
            over = [key for key, (_, until) in self._traces.items() if everything or until <= now]
            return [self._traces.pop(key)[0] for key in over]

    def __len__(self) -> int:
        return len(self._traces)
