"""Connections of the server: limited in total without a key and per key, and closed if a request takes too long.

uvicorn limits the size of a request's head (with h11) and idle connections; the other limits are here.
"""

import asyncio
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection
from typing import Any, ClassVar

import structlog

from combee.gateway.access.keys import Caller
from combee.gateway.access.throttle import network
from combee.gateway.limits import GatewayLimits
from combee.gateway.problems import busy
from combee.process.server import FramedProtocol

logger = structlog.get_logger()

TRIM_AFTER_S = 0.25
STATE = "combee.connection"
"""Key of the connection in an ASGI scope's state."""


class Connection:
    """One client's connection, with its caller once a key was sent."""

    def __init__(self, transport: asyncio.Transport, of: "Connections") -> None:
        peer = transport.get_extra_info("peername")
        self.address = network(str(peer[0])) if peer else ""
        self.transport = transport
        self.caller: Caller | None = None
        self.is_busy = False
        """Whether one of its requests is being answered, and the client reads the answer."""
        self.unread_bytes = 0
        """Bytes of a whole answer that wait until its client reads."""
        self.is_upgraded = False
        """Whether it became a websocket, whose end is not reported."""
        self._of = of

    def admit(self, caller: Caller) -> None:
        """Count the connection against a key from now on.

        Raises
        ------
        Refusal
            If the key has too many.
        """
        self._of.admit(self, caller)


class Connections:
    """All connections, oldest first."""

    def __init__(self, limits: GatewayLimits, proxies: Collection[str] = ()) -> None:
        self._limits = limits
        self._proxies = frozenset(map(network, proxies))
        self._unknown: OrderedDict[Connection, None] = OrderedDict()
        self._by_address: defaultdict[str, OrderedDict[Connection, None]] = defaultdict(OrderedDict)
        self._by_key: defaultdict[str, set[Connection]] = defaultdict(set)
        self._closed: Counter[str] = Counter()
        self._is_trimming = False

    def __len__(self) -> int:
        return len(self._unknown) + sum(map(len, self._by_key.values()))

    def opened(self, connection: Connection) -> None:
        """Count a new connection; if too many have no key, the oldest of them get a short deadline.

        Refusing new connections instead would let one attacker shut out all others: a client with a key sends it at
        once, so its connection is never the oldest. The deadline is needed because of many connections opened
        together none has been read yet.
        """
        self._unknown[connection] = self._by_address[connection.address][connection] = None
        is_excess = (
            len(self._unknown) > self._limits.unknown_connections
            or len(self._by_address[connection.address]) > self._limits.unknown_per_address
        )
        if is_excess and not self._is_trimming:
            self._is_trimming = True
            asyncio.get_running_loop().call_later(TRIM_AFTER_S, self._trim)

    def _trim(self) -> None:
        self._is_trimming, limits = False, self._limits
        for address, same in list(self._by_address.items()):
            if address not in self._proxies:
                self._shorten(same, limits.unknown_per_address, "too many from an address")
        self._shorten(self._unknown, limits.unknown_connections, "too many without a key")

    def _shorten(self, waiting: Collection[Connection], most: int, reason: str) -> None:
        # A connection whose request is being answered waits for the server, not the server for it.
        idle = [connection for connection in waiting if not connection.is_busy]
        for connection in idle[: max(len(idle) - most, 0)]:
            self.end(connection, reason)

    def admit(self, connection: Connection, caller: Caller) -> None:
        """Count a connection against a key."""
        if connection.caller == caller or connection.transport.is_closing():
            return
        of_key = self._by_key[caller.name]
        if connection not in of_key and len(of_key) >= self._limits.connections:
            raise busy("this key has too many connections", headers={"Connection": "close"})
        self.closed(connection)
        connection.caller = caller
        of_key.add(connection)

    def unread(self, connection: Connection, size: int) -> None:
        """Count bytes of a whole answer that its client does not read yet; close it if its key has too many."""
        connection.unread_bytes = size
        caller = connection.caller
        same = self._by_key[caller.name] if caller is not None else self._unknown
        if sum(each.unread_bytes for each in same) > self._limits.unread_bytes:
            self.end(connection, "too many bytes of answers not read")

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self._unknown.pop(connection, None)
        self._by_address[connection.address].pop(connection, None)
        if not self._by_address[connection.address]:
            del self._by_address[connection.address]
        if connection.caller is not None:
            self._by_key[connection.caller.name].discard(connection)
            if not self._by_key[connection.caller.name]:
                del self._by_key[connection.caller.name]

    def end(self, connection: Connection, reason: str) -> None:
        """Close a connection without waiting for the client to read the rest."""
        self.note(reason)
        self.closed(connection)
        connection.transport.abort()

    def note(self, reason: str) -> None:
        """Count a closed connection for the next log line."""
        self._closed[reason] += 1

    def turn(self, holds: Callable[[Caller], bool]) -> None:
        """Close the connections of removed keys, forget websockets that ended, and log closed connections.

        Called every second.
        """
        of_keys = [connection for of_key in self._by_key.values() for connection in of_key]
        for connection in (*self._unknown, *of_keys):
            if connection.caller is not None and not holds(connection.caller):
                self.end(connection, f"key removed: {connection.caller.name}")
            elif connection.is_upgraded and connection.transport.is_closing():
                self.closed(connection)
        if self._closed:
            logger.warning("connections_closed", reasons=dict(self._closed))
            self._closed.clear()


class Guarded(FramedProtocol):
    """uvicorn's protocol with counted connections, closed if no request arrives or no answer is read in time."""

    counted_by: ClassVar[Connections]
    limits: ClassVar[GatewayLimits]

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, and add it to its requests' state."""
        super().connection_made(transport)
        self._counted = Connection(transport, self.counted_by)
        self.app_state = {**self.app_state, STATE: self._counted}
        self.counted_by.opened(self._counted)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Receive data; single bytes now and then do not extend the deadline."""
        super().data_received(data)
        self._await_head()

    def on_response_complete(self) -> None:
        """Start the deadline of the next request."""
        if self.flow.write_paused:
            self.counted_by.unread(self._counted, self.transport.get_write_buffer_size())
        super().on_response_complete()
        self._await_head()

    def pause_writing(self) -> None:
        """Start the deadline of an answer that the client does not read."""
        super().pause_writing()
        self._await_head()

    def resume_writing(self) -> None:
        """End that deadline, and begin the next request."""
        super().resume_writing()
        self._counted.unread_bytes = 0
        self.flow.resume_reading()
        self.handle_events()
        self._await_head()

    def handle_events(self) -> None:
        """Begin no request before the answer to the last one was read."""
        if self.flow.write_paused:
            self.flow.pause_reading()
        else:
            super().handle_events()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._let_be()
        self.counted_by.closed(self._counted)
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: Any) -> None:
        """Hand the connection to the websocket protocol."""
        self._counted.is_upgraded = True
        super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP, a head that is too large, or a head with two lengths."""
        self.counted_by.note("invalid HTTP, or its head was too large or gave two lengths")
        super().send_400_response(msg)

    def _await_head(self) -> None:
        is_answering = self.cycle is not None and not self.cycle.response_complete
        self._counted.is_busy = (is_answering and not self.flow.write_paused) or self._counted.is_upgraded
        if self._counted.is_busy:
            self._let_be()
        elif self._deadline is None:
            limits = self.limits
            timeout_s = limits.send_timeout_s if is_answering else limits.head_timeout_s
            self._deadline = self.loop.call_later(timeout_s, self._too_late)

    def _let_be(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        is_unread = self.flow.write_paused
        self.counted_by.end(
            self._counted, "an answer not read in time" if is_unread else "no request in time"
        )


def guarded(counted: Connections, gateway_limits: GatewayLimits) -> type[Guarded]:
    """Return the protocol of one server."""

    class Bound(Guarded):
        counted_by = counted
        limits = gateway_limits

    return Bound
