"""A web server on a socket of this process, for the gateway, MCP and the stand-in."""

import contextlib
import ipaddress
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from combee.adapters.ports import FatalError

STOP_WITHIN_S = 5.0
BACKLOG = 1024


class Server(uvicorn.Server):
    """uvicorn without its signal handlers: its caller handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class _Framed(h11.Connection):
    """h11's reader; it refuses requests that a server before this one may read as two (RFC 9112, 6.1)."""

    def next_event(self) -> Any:
        """Return the next event; RemoteProtocolError: its length can be read in two ways."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            named = {name for name, _ in event.headers}
            is_old = event.http_version < b"1.1"
            if b"transfer-encoding" in named and (is_old or b"content-length" in named):
                raise h11.RemoteProtocolError("a length and a transfer coding, or a coding in HTTP/1.0")
        return event


class FramedProtocol(H11Protocol):
    """uvicorn's protocol; it answers a request whose length can be read in two ways with 400, and closes."""

    def __init__(self, config: uvicorn.Config, *args: Any, **settings: Any) -> None:
        super().__init__(config, *args, **settings)
        most = config.h11_max_incomplete_event_size
        self.conn = _Framed(h11.SERVER, *([] if most is None else [most]))


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address; ValueError: it is no address."""
    return host == "localhost" or ipaddress.ip_address(host).is_loopback


def bind(host: str, port: int, remedy: str) -> socket.socket:
    """Return a listening socket; ``remedy`` ends the message if the address cannot be used.

    Raises
    ------
    FatalError
        If the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio switches off Nagle's algorithm; otherwise each reply waits 40 ms for an ACK.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise FatalError(f"{host}:{port} cannot be used ({error.strerror}): {remedy}") from error
    return bound


def write_ready_file(file: Path | None, address: str) -> None:
    """Write a server's address to ``file``, if given; atomically, because other processes wait for the file."""
    if file is not None:
        part = file.with_suffix(".part")
        part.write_text(address)
        part.replace(file)
