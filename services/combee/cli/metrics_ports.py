"""Which port each worker of a stack tells of itself on."""

import socket
from collections.abc import Iterator
from contextlib import closing
from secrets import randbelow

from combee.ports import FatalError

LOWEST, HIGHEST = 16_000, 32_000
"""Below the ranges that systems give to outgoing connections: a worker that restarts finds its port free."""


def metrics_ports(first: int | None, host: str, count: int) -> list[int | None]:
    """Return a port per worker: none without ``first``, free ones for 0, else ``first`` and those after it."""
    if first is None:
        return [None] * count
    if first:
        return [first + number for number in range(count)]
    free = _free(host)
    return [next(free) for _ in range(count)]


def port_option(port: int | None) -> tuple[str, ...]:
    """Return the option that tells a worker its port."""
    return () if port is None else ("--metrics-port", str(port))


def address(host: str, port: int | None) -> str:
    """Return where a worker tells of itself; empty if nowhere."""
    shown = f"[{host}]" if ":" in host else host
    return "" if port is None else f"http://{shown}:{port}"


def _free(host: str) -> Iterator[int]:
    start = randbelow(HIGHEST - LOWEST)
    for step in range(HIGHEST - LOWEST):
        port = LOWEST + (start + step) % (HIGHEST - LOWEST)
        if _is_free(host, port):
            yield port
    raise FatalError("no free port for metrics: set COMBEE_METRICS_PORT")


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
