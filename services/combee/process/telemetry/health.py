"""Health of a process: whether it is alive and ready, and the HTTP endpoints that report it.

``/healthz``, ``/readyz`` and ``/metrics`` are served from a thread, so a stuck loop differs from a dead process.
"""

import asyncio
import socket
import socketserver
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Protocol

from combee.adapters.ports import Clock, FatalError
from combee.process.worker.dead_letter_limiter import named

BEAT_S = 0.5
STUCK_S = 10.0
"""Maximum age of the event loop's heartbeat: Kafka's heartbeats depend on the same loop."""
IDLE_S = 30.0
"""Seconds without a turn after which a work loop counts as waiting for something."""
MINUTE_S = 60.0
MAX_NAMED = 5
REQUEST_S = 5.0
"""Seconds after which a slow client is disconnected."""
POLL_S = 0.05
TEXT = "text/plain; charset=utf-8"

Page = tuple[HTTPStatus, str, bytes]
"""Status, content type, body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition of health: whether it holds, and its text for a health page."""

    name: str
    good: bool
    says: str
    waits: bool = False
    """Whether the process is ready but waits for something that heals by itself."""

    @property
    def mark(self) -> str:
        """The beginning of its line in a health page."""
        return "RED" if not self.good else "WAIT" if self.waits else "ok "


class Current(Protocol):
    """The part of a view that health needs."""

    @property
    def is_current(self) -> bool:
        """Whether it holds everything in its topic."""


class Health:
    """The health of this process. Written by the event loop, read by the server's threads."""

    def __init__(
        self,
        clock: Clock,
        *,
        dead_letters_per_minute: int,
        outage: Callable[[], str | None] = lambda: None,
        refusal: Callable[[], str | None] = lambda: None,
        trouble: Callable[[], str | None] = lambda: None,
        paused: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._clock = clock
        self._beat_at = clock.monotonic()
        self._turned_at: float | None = None
        self._dead_lettered_at: deque[float] = deque(maxlen=dead_letters_per_minute)
        self.views: Sequence[Current] = ()
        self.outage = outage
        """Why the log cannot be used now; None: it can."""
        self._refusal = refusal
        self._trouble = trouble
        self._paused = paused

    async def beat(self) -> None:
        """Prove for ever that the event loop turns."""
        while True:
            self._beat_at = self._clock.monotonic()
            await asyncio.sleep(BEAT_S)

    def turned(self) -> None:
        """The work loop came round, with partitions to work on."""
        self._turned_at = self._clock.monotonic()

    def dead_lettered(self) -> None:
        """A dead letter was written."""
        self._dead_lettered_at.append(self._clock.monotonic())

    def alive(self) -> Condition:
        """Return whether the event loop turns."""
        since_s = self._clock.monotonic() - self._beat_at
        says = (
            "the event loop turns" if since_s < STUCK_S else f"no turn of the event loop for {since_s:.0f} s"
        )
        return Condition(name="alive", good=since_s < STUCK_S, says=says)

    def conditions(self) -> tuple[Condition, ...]:
        """Return all conditions for this process to do its work."""
        return (
            self.alive(),
            self._broker(),
            self._assigned(),
            self._current(),
            self._model(),
            self._dead_letters(),
            self._flood(),
        )

    def _broker(self) -> Condition:
        outage = self.outage()
        return Condition(name="broker", good=outage is None, says=outage or "the broker answers")

    def _assigned(self) -> Condition:
        turned = self._turned_at
        since_s = 0.0 if turned is None else self._clock.monotonic() - turned
        if turned is None:
            says = "no partition has been assigned: it is joining, or there are more replicas than partitions"
        elif since_s < IDLE_S:
            says = "partitions are assigned and worked on"
        else:
            says = f"no turn with partitions for {since_s:.0f} s: the broker is away, or it restores itself"
        return Condition(name="assigned", good=turned is not None and since_s < IDLE_S, says=says)

    def _current(self) -> Condition:
        behind = sum(not view.is_current for view in self.views)
        says = f"{behind} of {len(self.views)} views are not current" if behind else "all views are current"
        return Condition(name="views", good=not behind, says=says)

    def _model(self) -> Condition:
        refusal, trouble = self._refusal(), self._trouble()
        says = refusal or trouble or "the model does not refuse"
        return Condition(name="model", good=refusal is None, says=says, waits=trouble is not None)

    def _dead_letters(self) -> Condition:
        limit = self._dead_lettered_at.maxlen or 0
        # Each operation on the deque is atomic: the event loop may append meanwhile.
        full = (
            len(self._dead_lettered_at) == limit
            and self._clock.monotonic() - self._dead_lettered_at[0] < MINUTE_S
        )
        says = f"{limit} dead letters or more within a minute" if full else "few dead letters, or none"
        return Condition(name="dead_letters", good=not full, says=says)

    def _flood(self) -> Condition:
        left = [f"{named(name)} ({seconds:.0f} s left)" for name, seconds in sorted(self._paused().items())]
        says = (
            f"too many dead letters, held back: {', '.join(left[:MAX_NAMED])}"
            if left
            else "nothing is held back"
        )
        more = f" and {len(left) - MAX_NAMED} more" if len(left) > MAX_NAMED else ""
        return Condition(name="flood", good=not left, says=says + more)


# ---- the endpoints


def pages(health: Health, metrics: Callable[[], tuple[str, bytes]]) -> dict[str, Callable[[], Page]]:
    """Return the pages by path; ``metrics`` gives content type and body."""
    return {
        "/healthz": lambda: _page([health.alive()]),
        "/readyz": lambda: _page(health.conditions()),
        "/metrics": lambda: (HTTPStatus.OK, *metrics()),
    }


def _page(conditions: Sequence[Condition]) -> Page:
    good = all(condition.good for condition in conditions)
    lines = [f"{condition.mark} {condition.name}: {condition.says}\n" for condition in conditions]
    status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
    return status, TEXT, "".join(lines).encode()


class _Server(socketserver.ThreadingMixIn, HTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, host: str, port: int, shown: dict[str, Callable[[], Page]]) -> None:
        self.pages = shown
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # HTTPServer's own method asks the name service for the host's name, which can take seconds.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]  # typed too wide

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing: clients may hang up."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(REQUEST_S)

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path.partition("?")[0])
        status, kind, body = page() if page else (HTTPStatus.NOT_FOUND, TEXT, b"no such page\n")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing: scrapes come all the time."""


@asynccontextmanager
async def serving(host: str, port: int, shown: dict[str, Callable[[], Page]]) -> AsyncIterator[str]:
    """Serve pages while the context is open; yields the base address (port 0 takes a free one).

    Raises
    ------
    FatalError
        If the address cannot be used.
    """
    try:
        server = _Server(host, port, shown)
    except OSError as error:
        raise FatalError(
            f"{host}:{port} cannot be used for metrics and health ({error.strerror}): set COMBEE_METRICS_HOST"
            f" and COMBEE_METRICS_PORT (--metrics-port), or unset the port"
        ) from error
    thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), daemon=True, name="health")
    thread.start()
    shown_host = f"[{host}]" if ":" in host else host
    try:
        yield f"http://{shown_host}:{server.server_port}"
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()
