"""``/healthz``, ``/readyz`` and ``/metrics`` from a thread: a stuck event loop can still be told from a dead one."""

import asyncio
import socket
import socketserver
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer

from combee.ports import FatalError
from combee.telemetry.health import Condition, Health

REQUEST_S = 5.0
"""A client slower than this is hung up on."""
POLL_S = 0.05
TEXT = "text/plain; charset=utf-8"

Page = tuple[HTTPStatus, str, bytes]
"""Status, content type, body."""


def pages(health: Health, metrics: Callable[[], tuple[str, bytes]]) -> dict[str, Callable[[], Page]]:
    """Return what there is to see, by path; ``metrics`` gives content type and body."""
    return {
        "/healthz": lambda: _told([health.alive()]),
        "/readyz": lambda: _told(health.conditions()),
        "/metrics": lambda: (HTTPStatus.OK, *metrics()),
    }


def _told(conditions: Sequence[Condition]) -> Page:
    good = all(one.good for one in conditions)
    lines = [f"{one.mark} {one.name}: {one.says}\n" for one in conditions]
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
        # HTTPServer's own asks the name service who we are, which can take seconds.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]  # typed too wide

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no event."""


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
        """Scrapes are no event."""


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
            f"{host}:{port} cannot be used for metrics and health ({error.strerror}): set COMBEE_METRICS_HOST and"
            " COMBEE_METRICS_PORT (--metrics-port), or leave the port out"
        ) from error
    thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), daemon=True, name="health")
    thread.start()
    shown_host = f"[{host}]" if ":" in host else host
    try:
        yield f"http://{shown_host}:{server.server_port}"
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()
