"""Ports on this machine: free ones, and the ones on which a stack's workers serve health and metrics."""

import socket
from collections.abc import Iterator
from contextlib import closing
from secrets import randbelow

from combee.adapters.ports import ConfigurationError, FatalError

LOWEST, HIGHEST = 16_000, 32_000
"""Below the ranges of outgoing connections, so that a restarted worker finds its port free."""
METRICS_REMEDY = (
    "end that process, or choose other ports with COMBEE_METRICS_PORT (--metrics-port; 0: free ones)"
)


def metrics_ports(first: int | None, host: str, count: int) -> list[int | None]:
    """Return a port per worker: none without ``first``, free ones for 0, else ``first`` and the ports after it."""
    if first is None:
        return [None] * count
    if first:
        for port in range(first, first + count):
            require_port(host, port, METRICS_REMEDY)
        return list(range(first, first + count))
    free = _free(host)
    return [next(free) for _ in range(count)]


def port_option(port: int | None) -> tuple[str, ...]:
    """Return the option that tells a worker its port."""
    return () if port is None else ("--metrics-port", str(port))


def address(host: str, port: int | None) -> str:
    """Return the address of a worker's health and metrics; empty if it has none."""
    shown = f"[{host}]" if ":" in host else host
    return "" if port is None else f"http://{shown}:{port}"


def _free(host: str) -> Iterator[int]:
    start = randbelow(HIGHEST - LOWEST)
    for step in range(HIGHEST - LOWEST):
        port = LOWEST + (start + step) % (HIGHEST - LOWEST)
        if _error(host, port) is None:
            yield port
    raise FatalError("no free port for metrics: set COMBEE_METRICS_PORT")


def require_port(host: str, port: int, remedy: str) -> None:
    """Refuse a port that another process uses.

    Raises
    ------
    ConfigurationError
        If it cannot be listened on; the message names the process that uses it, if known.
    """
    if (error := _error(host, port)) is not None:
        why = _listener(port) or error.strerror or str(error)
        raise ConfigurationError(f"{host}:{port} cannot be used ({why}): {remedy}") from error


def _listener(port: int) -> str | None:
    try:
        from combee.adapters.embedded_kafka.process import listener  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return None
    return listener(port)


def _error(host: str, port: int) -> OSError | None:
    """Return why a port cannot be listened on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None
