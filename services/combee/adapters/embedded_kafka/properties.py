"""The configuration files of a node, as pure text."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from combee.adapters.embedded_kafka.ports import LOOPBACK, NodePorts

FOR_EVER_MINUTES = 10 * 365 * 24 * 60

LOGGING = """\
rootLogger.level=WARN
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %m (%c)%n
"""


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
        # Progress must outlive a holiday: a lost offset would mean work done twice.
        "offsets.retention.minutes": str(FOR_EVER_MINUTES),
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "1",
        # A killed broker may only register again when the controller has given the dead one up.
        "broker.session.timeout.ms": "1500" if len(ports) == 1 else "3000",
        "broker.heartbeat.interval.ms": "300" if len(ports) == 1 else "500",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.dedupe.buffer.size": "2097152",
    }
    more = {key[:-1]: value for key, value in extra.items() if key.endswith("+")}
    replaced = {key: value for key, value in extra.items() if not key.endswith("+")}
    appended = {key: f"{own_properties[key]},{value}" for key, value in more.items()}
    return own_properties | replaced | appended


def render(properties: Mapping[str, str]) -> str:
    """Return the text of a Java properties file."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")
