"""One broker: its folder, its configuration, its process."""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from combee.adapters.embedded_kafka.data_dir import ClusterState
from combee.adapters.embedded_kafka.errors import DiskFullError, EmbeddedKafkaError, diagnose, tail
from combee.adapters.embedded_kafka.jvm import Jvm
from combee.adapters.embedded_kafka.locks import Lease
from combee.adapters.embedded_kafka.ports import LOOPBACK, NodePorts
from combee.adapters.embedded_kafka.process import BrokerProcess

FOR_EVER_MINUTES = 10 * 365 * 24 * 60
LEAST_FREE_BYTES = 1 << 20
MAX_TRANSACTION_MS = 60_000
"""The clients' default time-out of transactions: with a lower maximum they would be refused."""

LOGGING = """\
rootLogger.level=WARN
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %m (%c)%n
"""
LOGGING_OF_CONTROLLER = f"""\
{LOGGING}
logger.fencing.name=org.apache.kafka.controller.ReplicationControlManager
logger.fencing.level=INFO
"""
OF_BROKERS = ("advertised.listeners", "early.start.listeners", "inter.broker.listener.name")


def server_properties(
    node_id: int, ports: Sequence[NodePorts], log_dir: Path, extra: Mapping[str, str]
) -> dict[str, str]:
    """Return the properties of node ``node_id`` (from 1) of a cluster on loopback.

    ``extra`` replaces; under a name that ends in ``+`` it is appended (one more listener, say).
    """
    own, replicas = ports[node_id - 1], str(len(ports))
    in_sync = str(len(ports) // 2 + 1)
    voters = (f"{n}@{LOOPBACK}:{pair.controller}" for n, pair in enumerate(ports, start=1))
    own_properties = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(voters),
        "listeners": f"PLAINTEXT://{LOOPBACK}:{own.broker},CONTROLLER://{LOOPBACK}:{own.controller}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{own.broker}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(log_dir),
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "4",
        # Offsets must outlive a long pause: a lost offset means work done twice.
        "offsets.retention.minutes": str(FOR_EVER_MINUTES),
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "4",
        # Nobody reads past an open transaction: this bounds how long an agent that hangs in one can delay learning.
        "transaction.max.timeout.ms": str(MAX_TRANSACTION_MS),
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "1",
        # A lone node that stalls must not be given up, because no other can lead; with more nodes the others take
        # over soon.
        "broker.session.timeout.ms": "9000" if len(ports) == 1 else "3000",
        "broker.heartbeat.interval.ms": "300" if len(ports) == 1 else "500",
        "group.initial.rebalance.delay.ms": "0",
        # Deleted files must leave the disk while the broker runs; Kafka's default of a minute outlasts most commands.
        "log.segment.delete.delay.ms": "1000",
        "log.initial.task.delay.ms": "1000",
        "log.cleaner.dedupe.buffer.size": "2097152",
    }
    more = {key[:-1]: value for key, value in extra.items() if key.endswith("+")}
    replaced = {key: value for key, value in extra.items() if not key.endswith("+")}
    appended = {key: f"{own_properties[key]},{value}" for key, value in more.items()}
    return own_properties | replaced | appended


def controller_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a node's controller alone, which soon gives up silent brokers."""
    kept = {key: value for key, value in properties.items() if key not in OF_BROKERS}
    controllers = {name.strip() for name in properties["controller.listener.names"].split(",")}
    listeners = [listener.strip() for listener in properties["listeners"].split(",")]
    return kept | {
        "process.roles": "controller",
        "listeners": ",".join(text for text in listeners if text.partition("://")[0] in controllers),
        "controller.quorum.append.linger.ms": "0",
        "broker.heartbeat.interval.ms": "50",
        "broker.session.timeout.ms": "100",
    }


def render(properties: Mapping[str, str]) -> str:
    """Return the text of a Java properties file."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")


def node_folder(data_dir: Path, node_id: int) -> Path:
    """Return the folder of one node."""
    return data_dir / f"node-{node_id}"


def node_lease(data_dir: Path, node_id: int) -> Lease:
    """Return a new, untaken lease on one node."""
    return Lease(node_folder(data_dir, node_id) / "lease")


def node_process(data_dir: Path, node_id: int, pid: int) -> BrokerProcess:
    """Return the process that may run one node."""
    return BrokerProcess(pid=pid, word=str(node_folder(data_dir, node_id) / "server.properties"))


@dataclass(slots=True, kw_only=True)
class Node:
    """One broker of a cluster."""

    node_id: int
    data_dir: Path
    lease: Lease = field(init=False)
    process: BrokerProcess | None = None

    def __post_init__(self) -> None:
        self.lease = node_lease(self.data_dir, self.node_id)

    @property
    def folder(self) -> Path:
        """The folder of all files of this node."""
        return node_folder(self.data_dir, self.node_id)

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.alive()

    def configure(self, cluster: ClusterState, extra: Mapping[str, str]) -> None:
        """Write its configuration, with the cluster's ports of today."""
        # Files that killed JVMs unpacked there would pile up.
        shutil.rmtree(self.folder / "tmp", ignore_errors=True)
        (self.folder / "tmp").mkdir(parents=True)
        properties = server_properties(self.node_id, cluster.ports, self.folder / "logs", extra)
        self._properties.write_text(render(properties), "utf-8")
        (self.folder / "log4j2.properties").write_text(LOGGING, "utf-8")
        controller = self.folder / "controller"
        shutil.rmtree(controller / "tmp", ignore_errors=True)
        (controller / "tmp").mkdir(parents=True)
        (controller / "server.properties").write_text(render(controller_properties(properties)), "utf-8")
        (controller / "log4j2.properties").write_text(LOGGING_OF_CONTROLLER, "utf-8")

    async def format(self, jvm: Jvm, cluster_id: str) -> None:
        """Prepare the data folder, once in its life."""
        if (self.folder / "logs" / "meta.properties").exists():
            return
        arguments = ("format", "--ignore-formatted", "-t", cluster_id, "-c", str(self._properties))
        command = await asyncio.to_thread(jvm.command, self.folder, "kafka.tools.StorageTool", *arguments)
        code, written = await jvm.run(command)
        if code != 0:
            raise diagnose(f"The formatting of node {self.node_id}", written)

    async def spawn(self, jvm: Jvm, *, record: bool) -> None:
        """Start its process; the log of the last run is kept, too."""
        if self._log.exists():
            self._log.replace(self._log.with_name("broker.previous.log"))
        command = await asyncio.to_thread(
            jvm.command, self.folder, "kafka.Kafka", str(self._properties), record=record
        )
        pid = jvm.spawn(self.lease.path, self._log, command)
        self.process = node_process(self.data_dir, self.node_id, pid)

    @property
    def deletes(self) -> bool:
        """Whether files of deleted topics are still on its disk."""
        return any((self.folder / "logs").glob("*-delete"))

    @property
    def was_killed(self) -> bool:
        """Whether its last run ended without an orderly stop."""
        logs = self.folder / "logs"
        return (logs / "__cluster_metadata-0").exists() and not (logs / ".kafka_cleanshutdown").exists()

    @property
    def controller_log(self) -> Path:
        """The log file of its controller run alone."""
        return self.folder / "controller" / "controller.log"

    async def spawn_controller(self, jvm: Jvm, lease: Lease) -> BrokerProcess:
        """Start its controller alone, which ends with the holder of this lease."""
        properties = self.controller_log.with_name("server.properties")
        self.controller_log.unlink(missing_ok=True)
        command = await asyncio.to_thread(jvm.command, properties.parent, "kafka.Kafka", str(properties))
        return BrokerProcess(pid=jvm.spawn(lease.path, self.controller_log, command), word=str(properties))

    @staticmethod
    async def accepts(port: int) -> bool:
        """Return whether a process accepts connections there (which is not yet readiness)."""
        try:
            _, writer = await asyncio.open_connection(LOOPBACK, port)
        except OSError:
            return False
        writer.close()
        await writer.wait_closed()
        return True

    def failure(self) -> EmbeddedKafkaError:
        """Return the reason for its end, from its log."""
        if shutil.disk_usage(self.folder).free < LEAST_FREE_BYTES:
            # With a full disk the log is incomplete, too.
            return DiskFullError(
                f"Kafka node {self.node_id} ended at its start. The disk is full: free some space "
                f"for {self.folder}, or choose another data directory."
            )
        return diagnose(f"Kafka node {self.node_id}", self._written())

    def log_tail(self) -> str:
        """Return the end of its output since its last start."""
        return tail(self._written())

    def _written(self) -> str:
        return self._log.read_text("utf-8", errors="replace") if self._log.exists() else ""

    async def stop(self, timeout_s: float) -> None:
        """Stop its process."""
        if self.process:
            await self.process.stop(timeout_s)
            self.process = None

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    @property
    def _log(self) -> Path:
        return self.folder / "broker.log"
