from types import SimpleNamespace
from typing import Any

from aiokafka import TopicPartition

from combee.adapters.kafka.fetch_waits import LONG_MS, SHORT_MS, wait_longer_when_idle

NODES = {TopicPartition("t", 0): 1, TopicPartition("t", 1): 1, TopicPartition("t", 2): 2}


class Fetcher:
    """As much of aiokafka's as the waits look at: it makes the fetches that it is told of."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        wait_longer_when_idle(SimpleNamespace(_fetcher=self))

    def _select_read_replica(self, partition: TopicPartition) -> int:
        return NODES[partition]

    def _get_actions_per_node(self, _assignment: Any) -> Any:
        by_node: dict[int, list[tuple[int, int, int]]] = {}
        for partition, offset in self.offsets.items():
            by_node.setdefault(NODES[partition], []).append((partition.partition, offset, 1 << 18))
        fetches = [(node, SimpleNamespace(topics=[("t", parts)])) for node, parts in by_node.items()]
        return fetches, {}, 0.1, False, []

    def held_ms(self, *offsets: int) -> dict[int, int]:
        """Return how long each broker may hold a fetch from these offsets, one per partition; −1 leaves it out."""
        self.offsets = {tp: at for tp, at in zip(NODES, offsets, strict=True) if at >= 0}
        fetches, *_ = self._get_actions_per_node(SimpleNamespace(tps=NODES))
        return {node: fetch._max_wait_ms for node, fetch in fetches}


def test_a_fetch_is_held_the_longer_the_longer_nothing_comes() -> None:
    fetcher = Fetcher()
    held = [fetcher.held_ms(5, 5, 5)[1] for _ in range(6)]
    assert held == [SHORT_MS, 2 * SHORT_MS, 4 * SHORT_MS, 8 * SHORT_MS, LONG_MS, LONG_MS]


def test_what_came_makes_the_next_fetch_short_on_its_broker_alone() -> None:
    fetcher = Fetcher()
    for _ in range(6):
        fetcher.held_ms(5, 5, 5)
    assert fetcher.held_ms(5, 6, 5) == {1: SHORT_MS, 2: LONG_MS}


def test_a_fetch_that_leaves_a_partition_out_is_short_however_often_it_is_made() -> None:
    fetcher = Fetcher()
    for _ in range(6):
        fetcher.held_ms(5, 5, 5)
    assert [fetcher.held_ms(5, -1, 5)[1] for _ in range(4)] == [SHORT_MS] * 4
