"""Settings of the gateway."""

from pathlib import Path

from pydantic import Field, SecretStr

from combee.process.settings.group import Group


class GatewaySettings(Group):
    """Where the gateway listens, and who may ask it."""

    gateway_host: str = Field("127.0.0.1", min_length=1, description="the address the gateway listens on")
    gateway_port: int = Field(8750, ge=0, le=65_535, description="its port; 0: a free one")
    gateway_keys: SecretStr | None = Field(
        None, description="API keys as JSON, as in docs/guide/http.md; environment only"
    )
    gateway_keys_file: Path | None = Field(
        None, description="the same in a TOML or JSON file, read again when it changes"
    )
    gateway_proxies: str = Field(
        "",
        description="proxies whose `X-Forwarded-For` is believed (commas between)",
    )
    gateway_cors_origins: str = Field(
        "",
        description="origins whose pages may ask (commas between)",
    )
    otlp_playbook: str = Field(
        "", description="the playbook of OpenTelemetry spans that name none; empty: those are rejected"
    )
    dashboard: bool = Field(default=True, description="serve the dashboard, where its extra is installed")


def listed(text: str) -> tuple[str, ...]:
    """Return what a setting lists, separated by commas."""
    return tuple(item.strip() for item in text.split(",") if item.strip())
