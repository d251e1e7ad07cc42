"""What follows a kill -9 of all brokers: their controllers run alone first, until they have given every broker up.

A broker that comes back reads in its metadata that it leads its partitions, as before its death, and begins to
coordinate their transactions. Then the controller gives its former self up, and for a moment nobody leads. A
coordinator takes partitions without a leader for deleted: a transaction that was decided ends without its markers,
and readers of committed records stop there for ever (docs/design/adr/0027-hanging-transactions.md).
"""

import asyncio
import re
from collections.abc import Callable, Sequence

from combee.adapters.embedded_kafka.jvm import Jvm
from combee.adapters.embedded_kafka.locks import Lease
from combee.adapters.embedded_kafka.node import Node
from combee.adapters.embedded_kafka.process import BrokerProcess
from combee.adapters.embedded_kafka.waiting import until

GIVEN_UP = re.compile(r"Fencing broker (\d+) ")
ACTIVE = "Performing controller activation"
ACTIVE_S, GIVEN_UP_S, LEASE_S, STOP_S = 20.0, 3.0, 10.0, 5.0
"""Time limits. The second is needed because nothing is logged about brokers given up before they died."""
WRITTEN_S = 0.3
"""Seconds from the log line to the write: a controller that is told to stop writes nothing more."""


async def give_up_the_dead(nodes: Sequence[Node], jvm: Jvm) -> None:
    """Let the controllers of a cluster that was killed give up its brokers.

    An error that keeps a controller from starting also keeps its node from starting, which reports it.

    Raises
    ------
    DirectoryInUseError
        If another process recovers the same directory and does not end.
    """
    if not any(node.was_killed for node in nodes):
        return
    # A lease of their own: users of the broker hold the node's lease and would keep a leftover controller running.
    leases = [Lease(node.controller_log.with_name("lease")) for node in nodes]
    controllers: list[BrokerProcess] = []
    try:
        for node, lease in zip(nodes, leases, strict=True):
            await lease.wait(LEASE_S, exclusive=True)
            controllers.append(await node.spawn_controller(jvm, lease))
        if await _until(lambda: ACTIVE in _written(nodes), controllers, ACTIVE_S):
            ids = {str(node.node_id) for node in nodes}
            await _until(lambda: ids <= set(GIVEN_UP.findall(_written(nodes))), controllers, GIVEN_UP_S)
            await asyncio.sleep(WRITTEN_S)
    finally:
        await asyncio.gather(*(controller.stop(STOP_S) for controller in controllers))
        for lease in leases:
            lease.release()


async def _until(
    condition: Callable[[], bool], controllers: Sequence[BrokerProcess], timeout_s: float
) -> bool:
    """Wait for a condition while any controller runs; return whether it holds."""
    await until(lambda: condition() or not any(controller.alive() for controller in controllers), timeout_s)
    return condition()


def _written(nodes: Sequence[Node]) -> str:
    logs = (node.controller_log for node in nodes)
    return "".join(log.read_text("utf-8", errors="replace") for log in logs if log.exists())
