"""Loopback ports that nobody listens on."""

import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from secrets import randbelow

LOOPBACK = "127.0.0.1"
# Below the ranges from which systems pick ports for outgoing connections: while a broker is down, a client
# that retries could be given the broker's own port as its source, and so keep the broker from coming back.
LOWEST, HIGHEST = 16_000, 32_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePorts:
    """The two ports of a node."""

    broker: int
    controller: int


def free_ports(nodes: int) -> tuple[NodePorts, ...]:
    """Return two free ports a node; nobody reserves them, so the start may still find one taken."""
    ports: list[int] = []
    port = LOWEST + randbelow(HIGHEST - LOWEST)
    with ExitStack() as open_until_all_are_found:
        for _ in range(HIGHEST - LOWEST):
            if len(ports) == 2 * nodes:
                break
            if listener := _bound(port):
                open_until_all_are_found.enter_context(listener)
                ports.append(port)
            port = port + 1 if port < HIGHEST else LOWEST
    pairs = zip(ports[::2], ports[1::2], strict=True)
    return tuple(NodePorts(broker=broker, controller=controller) for broker, controller in pairs)


def all_free(ports: Sequence[NodePorts]) -> bool:
    """Return whether every one of these ports could be listened on now."""
    with ExitStack() as opened:
        for port in (number for pair in ports for number in (pair.broker, pair.controller)):
            listener = _bound(port)
            if listener is None:
                return False
            opened.enter_context(listener)
    return True


def _bound(port: int) -> socket.socket | None:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # As Java does: old connections in TIME_WAIT do not block a port.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen(1)
    except OSError:
        listener.close()
        return None
    return listener
