"""Real Apache Kafka on loopback, without Docker."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Self

from combee.adapters.embedded_kafka import jars
from combee.adapters.embedded_kafka.data_dir import ClusterState, RunState, default_cache_dir, new_cluster_id
from combee.adapters.embedded_kafka.errors import (
    BrokerStartError,
    EmbeddedKafkaError,
    PortTakenError,
    storage_errors,
)
from combee.adapters.embedded_kafka.java import find_java
from combee.adapters.embedded_kafka.jvm import ClassDataArchive, Jvm
from combee.adapters.embedded_kafka.node import Node
from combee.adapters.embedded_kafka.ports import LOOPBACK, all_free, free_ports
from combee.adapters.embedded_kafka.recovery import give_up_the_dead
from combee.adapters.embedded_kafka.waiting import run_all

Ready = Callable[[str], Awaitable[bool]]

POLL_S = 0.05
PORT_ATTEMPTS = 3
LEASE_TIMEOUT_S = 30.0
KILLED_TIMEOUT_S = 10.0


class EmbeddedKafka:
    """Real Apache Kafka 4.3.1 (KRaft) on loopback, one process a node.

    ``ready`` returns whether a broker at an address can create topics. During a download, ``progress`` is called with
    the number of jars present and the number of all jars. No other object may use ``data_dir``. The brokers end with
    this process, even if it is killed with kill -9. The address stays the same for the life of the object.
    """

    # Whether this object's lease keeps every other process from these brokers.
    _exclusive = True

    def __init__(
        self,
        data_dir: Path,
        *,
        ready: Ready,
        env: Mapping[str, str],
        nodes: int = 1,
        progress: jars.Progress | None = None,
        extra_properties: Mapping[str, str] | None = None,
        benchmark: bool = False,
    ) -> None:
        self._data_dir = data_dir.absolute()
        self._ready = ready
        self._env = env
        self._cache_dir = default_cache_dir()
        self._progress = progress
        self._extra = dict(extra_properties or {})
        self._benchmark = benchmark
        self._nodes = [Node(node_id=n, data_dir=self._data_dir) for n in range(1, nodes + 1)]
        self._jvm: Jvm | None = None
        self._cluster: ClusterState | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes, for clients."""
        return ",".join(self._address(node) for node in self._nodes)

    async def prepare(self) -> Jvm:
        """Find Java and fetch missing jars of the broker; `start` calls this if needed."""
        if self._jvm is None:
            java = await asyncio.to_thread(find_java, self._env)
            with storage_errors(self._cache_dir):
                paths = await jars.ensure(
                    jars.pinned(), self._cache_dir, fetch=jars.fetch, progress=self._progress
                )
            archive = ClassDataArchive(folder=self._cache_dir / "archives", java=java, jars=paths)
            self._jvm = Jvm(
                java=java,
                jars=paths,
                archive=archive,
                benchmark=self._benchmark,
                env=self._env,
            )
        return self._jvm

    async def start(self, timeout_s: float = 60) -> None:
        """Start all nodes and wait until they are ready; the time to fetch the broker is not counted."""
        for node in self._nodes:
            await self._check_gone(node)
        jvm = await self.prepare()
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self.stop, 0)
            for node in self._nodes:
                with storage_errors(self._data_dir):
                    await node.lease.wait(LEASE_TIMEOUT_S, exclusive=self._exclusive)
            try:
                async with asyncio.timeout(timeout_s):
                    await self._start_where_ports_are_free(jvm)
            except TimeoutError as error:
                raise self._late(timeout_s) from error
            except BrokerStartError:
                jvm.archive.forget()
                raise
            undo.pop_all()

    async def stop(self, timeout_s: float = 20) -> None:
        """Stop all nodes in good order, and after ``timeout_s`` with kill -9."""
        if any(node.process for node in self._nodes):
            await asyncio.gather(*(node.stop(timeout_s) for node in self._nodes))
            RunState.remove(self._data_dir)
        for node in self._nodes:
            node.lease.release()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _start_where_ports_are_free(self, jvm: Jvm) -> None:
        movable = self._may_move()
        cluster = self._cluster or self._remembered()
        for attempt in range(1, PORT_ATTEMPTS + 1):
            self._configure(cluster)
            await run_all(node.format(jvm, cluster.cluster_id) for node in self._nodes)
            try:
                await self._run(jvm, self._nodes)
            except PortTakenError:
                if not movable or attempt == PORT_ATTEMPTS:
                    raise
                await asyncio.gather(*(node.stop(0) for node in self._nodes))
                cluster = replace(cluster, ports=free_ports(len(self._nodes)))
            else:
                return

    def _may_move(self) -> bool:
        """Return whether the ports may change: no client knows them before the first start."""
        return self._cluster is None

    def _remembered(self) -> ClusterState:
        cluster = ClusterState.load(self._data_dir)
        if cluster and len(cluster.ports) != len(self._nodes):
            raise EmbeddedKafkaError(
                f"{self._data_dir} holds a cluster of {len(cluster.ports)} nodes, not of {len(self._nodes)}. "
                "Start it with as many nodes, or choose another directory."
            )
        return cluster or ClusterState(cluster_id=new_cluster_id(), ports=free_ports(len(self._nodes)))

    def _configure(self, cluster: ClusterState) -> None:
        with storage_errors(self._data_dir):
            cluster.save(self._data_dir)
            for node in self._nodes:
                node.configure(cluster, self._extra)
        self._cluster = cluster

    async def _run(self, jvm: Jvm, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self._check_ports(node)
        if len(nodes) == len(self._nodes):
            await give_up_the_dead(nodes, jvm)
        for node in nodes:
            # One class-data archive serves all nodes: only the first node records it.
            await node.spawn(jvm, record=node is self._nodes[0] and not self._benchmark)
        pids = {node.node_id: node.process.pid for node in self._nodes if node.process}
        with storage_errors(self._data_dir):
            RunState(address=self.bootstrap_servers, pids=pids).save(self._data_dir)
        await run_all(self._until_ready(node) for node in nodes)

    @staticmethod
    async def _check_gone(node: Node) -> None:
        # A process that was just killed takes a moment to end.
        if node.process and not await node.process.wait_ended(KILLED_TIMEOUT_S):
            raise EmbeddedKafkaError(f"Kafka node {node.node_id} runs already: stop or kill it first.")

    def _check_ports(self, node: Node) -> None:
        # Another process on this port could answer in the broker's place.
        if self._cluster and not all_free([ports := self._cluster.ports[node.node_id - 1]]):
            raise PortTakenError(
                f"Port {ports.broker} or {ports.controller}, which Kafka node {node.node_id} needs, is taken: "
                "end the process that listens on it, or start on new ports."
            )

    async def _until_ready(self, node: Node) -> None:
        # The cheap question first: clients log every refused connection as an error.
        while not (await node.accepts(self._port(node)) and await self._ready(self._address(node))):
            if not node.alive:
                raise node.failure()
            await asyncio.sleep(POLL_S)

    def _late(self, timeout_s: float) -> BrokerStartError:
        tails = "\n".join(f"node {node.node_id}: {node.log_tail()}" for node in self._nodes)
        return BrokerStartError(
            f"Kafka was not ready after {timeout_s:.0f} s. On a busy machine allow more time; "
            f"otherwise see the end of its log:\n{tails}"
        )

    def _address(self, node: Node) -> str:
        return f"{LOOPBACK}:{self._port(node)}"

    def _port(self, node: Node) -> int:
        if self._cluster is None:
            raise EmbeddedKafkaError("The embedded broker has no address yet: start it first.")
        return self._cluster.ports[node.node_id - 1].broker
