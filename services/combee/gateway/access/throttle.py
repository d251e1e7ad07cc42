"""Wrong keys by address: after too many, requests with a wrong key are refused for a while."""

import ipaddress
from collections import Counter, OrderedDict, deque

WINDOW_S = 60.0
ADDRESSES_KEPT = 10_000
MAX_LOGGED = 5
HOST_BITS = 64
"""Bits of an IPv6 network, all of whose addresses one client may use."""


class WrongKeyThrottle:
    """Wrong keys of each address; after ``most`` in a minute the address is throttled.

    Valid keys always pass: many clients may share one address, and one that guesses, or uses an old key, must not
    lock out the others. Guessing is hopeless because keys are random.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._failed: OrderedDict[str, deque[float]] = OrderedDict()
        self._unlogged: Counter[str] = Counter()

    def failed(self, address: str, now_s: float) -> float:
        """Count a wrong key; return how long its address is throttled (s), 0 if it is not."""
        place = network(address)
        failed = self._failed.setdefault(place, deque(maxlen=self._most))
        self._failed.move_to_end(place)
        while len(self._failed) > ADDRESSES_KEPT:
            self._failed.popitem(last=False)
        if len(failed) == self._most and (left_s := failed[0] + WINDOW_S - now_s) > 0:
            return left_s
        failed.append(now_s)
        return 0.0

    def refused(self, address: str) -> None:
        """Count a refused request for the next log line."""
        if len(self._unlogged) < ADDRESSES_KEPT:
            self._unlogged[network(address)] += 1

    def take_refused(self) -> Counter[str]:
        """Return the refused requests by address since the last call."""
        refused, self._unlogged = self._unlogged, Counter()
        return refused


def network(address: str) -> str:
    """Return a client's identity: its IPv4 address, or the network of its IPv6 address."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if ip.version == 4 or ip.is_loopback:  # noqa: PLR2004 - the version of the protocol
        return str(ip)
    return str(ipaddress.ip_network((ip, HOST_BITS), strict=False))
