"""Settings of the log."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from combee.settings.group import Group


class KafkaSettings(Group):
    """Where the log is and how its topics are laid out."""

    bootstrap_servers: str | None = Field(None, description="Kafka brokers; empty: the embedded broker")
    topic_prefix: str = Field(
        "combee", pattern=r"^[A-Za-z0-9._-]{1,80}$", description="name space of all topics"
    )
    partitions: int = Field(4, ge=1, description="of topics keyed by playbook; fixed at creation")
    scan_partitions: int = Field(8, ge=1, description="of traces and scan topics; fixed at creation")
    replication_factor: int = Field(1, ge=1, description="replicas of each topic")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="how to connect"
    )
    ssl_cafile: Path | None = Field(
        None, description="CA certificates for SSL and SASL_SSL; empty: the machine's"
    )
    ssl_certfile: Path | None = Field(
        None, description="the client's certificate (PEM, with its chain), where brokers ask for one"
    )
    ssl_keyfile: Path | None = Field(None, description="its key (PEM); empty: in the same file")
    ssl_key_password: SecretStr | None = Field(None, description="of an encrypted key; environment only")
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"] = Field(
        "SCRAM-SHA-512", description="with SASL_*"
    )
    sasl_username: str | None = Field(None, description="with PLAIN and SCRAM")
    sasl_password: SecretStr | None = Field(None, description="with PLAIN and SCRAM; environment only")
    oauth_token_url: str | None = Field(
        None, description="with OAUTHBEARER: the token endpoint, asked by client credentials"
    )
    oauth_client_id: str | None = Field(None, description="with OAUTHBEARER")
    oauth_client_secret: SecretStr | None = Field(None, description="with OAUTHBEARER; environment only")
    oauth_scope: str | None = Field(None, description="with OAUTHBEARER, where the endpoint wants one")
    oauth_cafile: Path | None = Field(
        None, description="CA certificates of the token endpoint; empty: the machine's"
    )
    aws_region: str | None = Field(None, description="with AWS_MSK_IAM (combee[msk]): the cluster's region")
