"""What strangers, keys and requests may use of the gateway: constants, alike in every deployment."""

from dataclasses import dataclass

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLimits:
    """Ten times and more of what agents use; they keep one client, or a stranger, from costing the others theirs."""

    failed_keys: int = 10
    """Wrong keys per address and minute; people who mistype need few, and more than these wait a second."""
    unknown_connections: int = 1000
    """Connections without a valid key; the oldest is closed. A process may have 1,024 open files and more."""
    unknown_per_address: int = 100
    """The same per address (of IPv6 its /64): a tenth, so that one address takes no place from nine others."""
    connections: int = 2000
    """Connections per key: a fleet of agents shares one."""
    streams: int = 1000
    """Event streams per key: half of its connections, so that requests get in next to them."""
    max_head_bytes: int = 32 * KIB
    """Request line and headers; a large cookie and a token of 8 KiB fit."""
    head_timeout_s: float = 10.0
    max_body_bytes: int = 4 * MIB
    """Four times the largest message."""
    max_batch: int = 500
    """Items of one request: their receipt is one answer."""
    inflight_requests: int = 256
    """Requests with a body per key."""
    inflight_bytes: int = 64 * MIB
    """Bodies per key: 16 of the largest; a container of 512 MiB holds those of several keys."""
    body_timeout_s: float = 20.0
    """The largest body arrives in time at 2 Mbit/s."""
    ack_timeout_s: float = 15.0
    """For Kafka's acknowledgement; clients usually wait 30 s for an answer."""
    heartbeat_s: float = 15.0
    """Between signs of life in a stream: proxies close connections that are silent for 30 to 60 s."""
    send_timeout_s: float = 30.0
    """A stream's client that reads nothing for two heartbeats is dropped."""
    spans_wait_s: float = 300.0
    """For the rest of a trace: exporters send within seconds, and an agent's outermost span ends last."""
    spans_waiting_bytes: int = 64 * MIB
    """Spans per key that wait for the rest of their traces."""


LIMITS = GatewayLimits()
