"""Limits of the gateway for strangers, keys and requests: constants of every deployment."""

from dataclasses import dataclass

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLimits:
    """At least ten times the needs of agents; they keep one client, or a stranger, from crowding out the others."""

    failed_keys: int = 10
    """Wrong keys per address and minute; people who mistype need few, and each further one waits a second."""
    unknown_connections: int = 1000
    """Connections without a valid key; the oldest is closed. A process may have at least 1,024 open files."""
    unknown_per_address: int = 100
    """The same per address (for IPv6 per /64): a tenth, so that one address leaves room for nine others."""
    connections: int = 2000
    """Connections per key: a fleet of agents shares one."""
    streams: int = 1000
    """Event streams per key: half of its connections, so that requests find room."""
    max_head_bytes: int = 32 * KIB
    """Request line and headers; a large cookie and a token of 8 KiB fit."""
    head_timeout_s: float = 10.0
    max_body_bytes: int = 4 * MIB
    """Four times the largest message."""
    max_batch: int = 500
    """Items per request, as their receipt is one answer."""
    inflight_requests: int = 256
    """Requests with a body per key."""
    inflight_bytes: int = 64 * MIB
    """Bytes of bodies per key: 16 of the largest; a container of 512 MiB holds the bodies of several keys."""
    body_timeout_s: float = 20.0
    """The largest body arrives in time at 2 Mbit/s."""
    ack_timeout_s: float = 15.0
    """Wait for Kafka's acknowledgement; clients usually wait 30 s for an answer."""
    unread_bytes: int = 64 * MIB
    """Bytes of answers per key, and of all without one, that their clients do not read; those of streams excepted."""
    heartbeat_s: float = 15.0
    """Interval of heartbeats in a stream: proxies close connections that are silent for 30 to 60 s."""
    send_timeout_s: float = 30.0
    """A stream's client that reads nothing for two heartbeats is dropped."""
    spans_wait_s: float = 300.0
    """Wait for the rest of a trace: exporters send within seconds, and an agent's outermost span ends last."""
    spans_waiting_bytes: int = 64 * MIB
    """Bytes of spans per key that wait for the rest of their traces."""


LIMITS = GatewayLimits()
