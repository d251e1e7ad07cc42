"""How long a broker may hold a consumer's fetch until there is something to answer."""

from typing import Any

SHORT_MS = 50
LONG_MS = 500


def wait_longer_when_idle(consumer: Any) -> None:
    """Let brokers hold a started consumer's fetches longer while no records come.

    A fetch is answered as soon as one of its partitions has a record. But aiokafka has one fetch per broker at a
    time: a partition that is not in it, because its records are not consumed yet or because it is paused, waits for
    its end. So a fetch is held for long only if it covers every partition of its broker, and if the fetch before
    brought nothing.
    """
    fetcher = consumer._fetcher  # noqa: SLF001 - aiokafka has one wait for all fetches
    fetcher._get_actions_per_node = _IdleWaits(fetcher)  # noqa: SLF001 - the same
    look_seldom(consumer, LONG_MS)


def look_seldom(consumer: Any, wait_ms: int) -> None:
    """Let a started consumer check its fetches when they return or an event comes, not on a timer."""
    consumer._fetcher._fetcher_timeout = wait_ms / 1000  # noqa: SLF001 - aiokafka does so five times a second


class _IdleWaits:
    """Decides on each fetch as it is made."""

    def __init__(self, fetcher: Any) -> None:
        self._fetcher = fetcher
        self._actions = fetcher._get_actions_per_node  # noqa: SLF001 - the same
        self._fetched: dict[int, dict[tuple[str, int], int]] = {}
        """By broker, the offsets that the last fetch asked for."""
        self._wait_ms: dict[int, int] = {}

    def __call__(self, assignment: Any) -> Any:
        fetches, *others = self._actions(assignment)
        for node, fetch in fetches:
            offsets = {(topic, part): at for topic, parts in fetch.topics for part, at, _ in parts}
            all_of_node = sum(self._fetcher._select_read_replica(tp) == node for tp in assignment.tps)  # noqa: SLF001 - the same
            nothing_came = len(offsets) == all_of_node and offsets == self._fetched.get(node)
            self._fetched[node] = offsets
            doubled = min(LONG_MS, 2 * self._wait_ms.get(node, SHORT_MS))
            self._wait_ms[node] = doubled if nothing_came else SHORT_MS
            fetch._max_wait_ms = self._wait_ms[node]  # noqa: SLF001 - the same
        return fetches, *others
