"""Settings of one process."""

from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, Field

from combee.process.settings.group import SettingsGroup

SERVICES = ("control", "publish", "scan", "shuffle", "reflect")
"""Every service, in the order of starting: readers start before their writers."""


class WorkerSettings(SettingsGroup):
    """One process."""

    slot: int | None = Field(
        None,
        ge=0,
        description="number of this replica if it keeps one over restarts; if two share a number, the later one wins",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="level of structured logs; debug to investigate a fault"
    )
    log_json: bool = Field(False, description="write logs as JSON lines, for a collector")
    data_dir: Path | None = Field(
        None, description="directory of the embedded broker; empty: the user's data folder"
    )
    ready_file: Path | None = Field(None, description="file created when the service is ready")
    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65_535,
        description="port of /metrics, /healthz and /readyz; 0: a free one; empty: none; 'combee up' uses"
        " this one and the next ones",
    )
    metrics_host: str = Field("127.0.0.1", min_length=1, description="address for COMBEE_METRICS_PORT")
    otel_endpoint: str | None = Field(
        None,
        pattern=r"^https?://\S+$",
        validation_alias=AliasChoices("otel_endpoint", "COMBEE_OTEL_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        description="receiver of spans and metrics by OTLP/HTTP, such as http://localhost:4318; empty: none",
    )
    dead_letters_per_minute: int = Field(
        30,
        ge=1,
        description="maximum number of dead letters per minute; above it /readyz turns red, and reflect and"
        " scan hold back the playbook at fault, or stop",
    )
