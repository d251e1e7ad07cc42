"""Credentials of a Kafka client: fields of the services' settings and of agents' environment."""

from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, Field, SecretStr


class Credentials(BaseModel):
    """The credentials of a connection; the variable of each field is ``COMBEE_`` and its name."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="protocol of the cluster's listener"
    )
    ssl_cafile: Path | None = Field(
        None, description="file of CA certificates for SSL and SASL_SSL; empty: the machine's"
    )
    ssl_certfile: Path | None = Field(
        None, description="file of the client's certificate (PEM, with its chain), if brokers ask for one"
    )
    ssl_keyfile: Path | None = Field(
        None, description="file of the certificate's key (PEM); empty: the same file"
    )
    ssl_key_password: SecretStr | None = Field(
        None, description="password of an encrypted key; environment only"
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"] = Field(
        "SCRAM-SHA-512", description="SASL mechanism, with SASL_SSL and SASL_PLAINTEXT"
    )
    sasl_username: str | None = Field(None, description="user name with PLAIN and SCRAM")
    sasl_password: SecretStr | None = Field(
        None, description="password with PLAIN and SCRAM; environment only"
    )
    oauth_token_url: str | None = Field(
        None, description="with OAUTHBEARER: URL of the token endpoint, asked by client credentials"
    )
    oauth_client_id: str | None = Field(None, description="with OAUTHBEARER: the client's id")
    oauth_client_secret: SecretStr | None = Field(
        None, description="with OAUTHBEARER: the client's secret; environment only"
    )
    oauth_scope: str | None = Field(None, description="with OAUTHBEARER: scope, if the endpoint wants one")
    oauth_cafile: Path | None = Field(
        None, description="file of CA certificates for the token endpoint; empty: the machine's"
    )
    aws_region: str | None = Field(None, description="with AWS_MSK_IAM (combee[msk]): the cluster's region")


SECRETS = tuple(
    name for name, field in Credentials.model_fields.items() if SecretStr in get_args(field.annotation)
)
"""Fields that may also stand in a file, and that are never shown."""
