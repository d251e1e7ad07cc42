"""Real Apache Kafka without Docker: fetched, checked, started on loopback."""

from combee.adapters.embedded_kafka.cluster import EmbeddedKafka
from combee.adapters.embedded_kafka.errors import (
    BrokerStartError,
    DirectoryInUseError,
    DiskFullError,
    DownloadError,
    EmbeddedKafkaError,
    JarMismatchError,
    JavaNotFoundError,
    PortTakenError,
)
from combee.adapters.embedded_kafka.user_broker import open_user_broker

__all__ = [
    "BrokerStartError",
    "DirectoryInUseError",
    "DiskFullError",
    "DownloadError",
    "EmbeddedKafka",
    "EmbeddedKafkaError",
    "JarMismatchError",
    "JavaNotFoundError",
    "PortTakenError",
    "open_user_broker",
]
