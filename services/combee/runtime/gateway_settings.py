"""Settings of the gateway."""

from pathlib import Path

from pydantic import Field, SecretStr

from combee.runtime.group import Group

MIB = 1 << 20


class GatewaySettings(Group):
    """Where the gateway listens, who may ask it, and how much at once."""

    gateway_host: str = Field("127.0.0.1", min_length=1, description="the address the gateway listens on")
    gateway_port: int = Field(8750, ge=0, le=65_535, description="its port; 0: a free one")
    gateway_keys: SecretStr | None = Field(
        None, description="API keys as JSON, as in docs/http.md; environment only"
    )
    gateway_keys_file: Path | None = Field(None, description="API keys in a TOML or JSON file instead")
    gateway_cors_origins: str = Field(
        "",
        description="origins whose pages may ask, separated by commas, such as `https://a.example`; empty: none",
    )
    gateway_max_body_bytes: int = Field(
        4 * MIB, ge=1024, le=64 * MIB, description="a larger body is refused before it is read (bytes)"
    )
    gateway_max_batch: int = Field(500, ge=1, le=10_000, description="items of one request at most (records)")
    gateway_inflight_requests: int = Field(
        256, ge=1, description="requests with a body at once; more get 429"
    )
    gateway_inflight_bytes: int = Field(
        64 * MIB, ge=1024, description="their bodies together; more get 429 (bytes)"
    )
    gateway_body_timeout_s: float = Field(20, gt=0, description="a body must have arrived by then (s)")
    gateway_ack_timeout_s: float = Field(
        15, gt=0, description="Kafka must have acknowledged by then, else 503 (s)"
    )
    gateway_streams: int = Field(1000, ge=1, description="event streams at once; more get 429")
    gateway_heartbeat_s: float = Field(15, gt=0, description="event streams: a sign of life so often (s)")
    gateway_send_timeout_s: float = Field(
        30, gt=0, description="event streams: a client that takes nothing for so long is dropped (s)"
    )
    dashboard: bool = Field(default=True, description="serve the dashboard, where its extra is installed")
