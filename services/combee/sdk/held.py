"""Traces that wait for their outcome, each until its time is over."""

import threading
import time

from combee_schemas.trace import Trace

MOST = 1_000


class Held:
    """A bounded shelf of traces by id; any thread may use it."""

    def __init__(self) -> None:
        self._traces: dict[tuple[str, str], tuple[Trace, float]] = {}
        """By playbook and trace id."""
        self._lock = threading.Lock()

    def put(self, trace: Trace, within_s: float) -> Trace | None:
        """Hold a trace; return the one whose place it takes, or the oldest if there are too many now."""
        key = (trace.playbook, trace.trace_id)
        with self._lock:
            displaced = self._traces.pop(key, None)
            self._traces[key] = trace, time.monotonic() + within_s
            if len(self._traces) > MOST:
                displaced = self._traces.pop(next(iter(self._traces)))
            return displaced[0] if displaced else None

    def take(self, trace_id: str) -> list[Trace]:
        """Return the traces of an id, one per playbook, and hold them no longer."""
        with self._lock:
            keys = [key for key in self._traces if key[1] == trace_id]
            return [self._traces.pop(key)[0] for key in keys]

    def due(self, *, everything: bool = False) -> list[Trace]:
        """Return the traces whose time is over, or all; they are held no longer."""
        now = time.monotonic()
        with self._lock:
            over = [key for key, (_, until) in self._traces.items() if everything or until <= now]
            return [self._traces.pop(key)[0] for key in over]

    def __len__(self) -> int:
        return len(self._traces)
