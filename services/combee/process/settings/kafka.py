"""Settings of the log."""

from pydantic import Field

from combee.adapters.credentials import Credentials
from combee.process.settings.group import SettingsGroup


class KafkaSettings(Credentials, SettingsGroup):
    """Address of the log and layout of its topics."""

    bootstrap_servers: str | None = Field(None, description="Kafka brokers; empty: the embedded broker")
    topic_prefix: str = Field(
        "combee", pattern=r"^[A-Za-z0-9._-]{1,80}$", description="prefix of all topics' names"
    )
    partitions: int = Field(
        4,
        ge=1,
        description="partitions of topics keyed by playbook: the maximum number of shuffle's replicas; fixed"
        " at creation",
    )
    scan_partitions: int = Field(
        8,
        ge=1,
        description="partitions of traces and scan topics: the maximum number of reflect's and scan's"
        " replicas; fixed at creation",
    )
    replication_factor: int = Field(
        1, ge=1, description="replicas of each topic; 3 to survive the loss of a broker"
    )
