"""With what a process shows Kafka who it is: the services' settings and agents' environment have these fields."""

from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, Field, SecretStr


class Credentials(BaseModel):
    """What a connection needs; the variable of each field is ``COMBEE_`` and its name."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="how to connect, as the cluster's listener wants it"
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


SECRETS = tuple(
    name for name, field in Credentials.model_fields.items() if SecretStr in get_args(field.annotation)
)
"""What may also stand in a file, and is shown to nobody."""
