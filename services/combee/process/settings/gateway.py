"""Settings of the gateway."""

from pathlib import Path

from pydantic import Field, SecretStr

from combee.process.settings.group import SettingsGroup


class GatewaySettings(SettingsGroup):
    """The gateway's address and its callers."""

    gateway_host: str = Field("127.0.0.1", min_length=1, description="address on which the gateway listens")
    gateway_port: int = Field(
        8750, ge=0, le=65_535, description="port on which the gateway listens; 0: a free one"
    )
    gateway_keys: SecretStr | None = Field(
        None, description="API keys as JSON, as in docs/guide/http.md; environment only"
    )
    gateway_keys_file: Path | None = Field(
        None, description="TOML or JSON file with the API keys, read again when it changes"
    )
    gateway_proxies: str = Field(
        "",
        description="proxies whose `X-Forwarded-For` is trusted (separated by commas)",
    )
    gateway_cors_origins: str = Field(
        "",
        description="web origins whose pages may send requests (separated by commas)",
    )
    otlp_playbook: str = Field(
        "", description="playbook of OpenTelemetry spans that name none; empty: such spans are rejected"
    )
    dashboard: bool = Field(default=True, description="serve the dashboard if its extra is installed")


def listed(text: str) -> tuple[str, ...]:
    """Return what a setting lists, separated by commas."""
    return tuple(item.strip() for item in text.split(",") if item.strip())
