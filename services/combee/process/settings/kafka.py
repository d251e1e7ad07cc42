"""Settings of the log."""

from pydantic import Field

from combee.adapters.credentials import Credentials
from combee.process.settings.group import Group


class KafkaSettings(Credentials, Group):
    """Where the log is and how its topics are laid out."""

    bootstrap_servers: str | None = Field(None, description="Kafka brokers; empty: the embedded broker")
    topic_prefix: str = Field(
        "combee", pattern=r"^[A-Za-z0-9._-]{1,80}$", description="name space of all topics"
    )
    partitions: int = Field(
        4,
        ge=1,
        description="of topics keyed by playbook, as many as shuffle may have replicas; fixed at creation",
    )
    scan_partitions: int = Field(
        8,
        ge=1,
        description="of traces and scan topics, as many as reflect and scan may have replicas; fixed at creation",
    )
    replication_factor: int = Field(
        1, ge=1, description="replicas of each topic; 3 where a broker may be lost"
    )
