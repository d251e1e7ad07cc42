"""Wrong keys by the address that gave them: after some, each further one has to wait."""

import ipaddress
from collections import Counter, OrderedDict, deque

WINDOW_S = 60.0
ADDRESSES_KEPT = 10_000
SHOWN = 5
HOST_BITS = 64
"""Of an IPv6 address: whoever has one has all of these."""


class WrongKeyThrottle:
    """What each address tried; after ``most`` wrong keys in a minute it is throttled.

    Good keys pass even then: behind one address may be many clients, and one that guesses, or whose key is old,
    does not lock out the others. What makes guessing hopeless is that keys are random.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._failed: OrderedDict[str, deque[float]] = OrderedDict()
        self._unlogged: Counter[str] = Counter()

    def failed(self, address: str, now_s: float) -> float:
        """Take a wrong key; return for how long its address is throttled (s), 0 if it is not."""
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
        """Somebody was sent away, for whatever reason; the next line of the log says so."""
        if len(self._unlogged) < ADDRESSES_KEPT:
            self._unlogged[network(address)] += 1

    def take_refused(self) -> Counter[str]:
        """Return how many were sent away since this was asked last, by address."""
        refused, self._unlogged = self._unlogged, Counter()
        return refused


def network(address: str) -> str:
    """Return what stands for one client: an IPv4 address, or the network of an IPv6 one."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if ip.version == 4 or ip.is_loopback:  # noqa: PLR2004 - the version of the protocol
        return str(ip)
    return str(ipaddress.ip_network((ip, HOST_BITS), strict=False))
