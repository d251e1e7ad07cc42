"""Settings of one process."""

from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, Field

from combee.process.settings.group import Group

SERVICES = ("control", "publish", "scan", "shuffle", "reflect")
"""Every service; started in this order, so that each finds its readers there."""


class WorkerSettings(Group):
    """One process."""

    slot: int | None = Field(
        None,
        ge=0,
        description="number of this replica, where it keeps one over restarts; of two with one number the later wins",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="of structured logs; debug to look into a fault"
    )
    log_json: bool = Field(False, description="logs as JSON lines, for a collector")
    data_dir: Path | None = Field(
        None, description="the embedded broker's directory; empty: the user's data folder"
    )
    ready_file: Path | None = Field(None, description="touched when the service is ready")
    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65_535,
        description="serves /metrics, /healthz, /readyz; 0: a free one; empty: none; 'combee up': from this one on",
    )
    metrics_host: str = Field("127.0.0.1", min_length=1, description="the address for that port")
    otel_endpoint: str | None = Field(
        None,
        pattern=r"^https?://\S+$",
        validation_alias=AliasChoices("otel_endpoint", "COMBEE_OTEL_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        description="spans and metrics go there by OTLP/HTTP, such as http://localhost:4318; empty: nowhere",
    )
    dead_letters_per_minute: int = Field(
        30,
        ge=1,
        description="more turn /readyz red; reflect and scan hold back the playbook at fault, or stop",
    )
