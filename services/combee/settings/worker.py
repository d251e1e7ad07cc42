"""Settings of one process."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from combee.settings.group import Group

SERVICES = ("control", "publish", "scan", "shuffle", "reflect")
"""Every service; started in this order, so that each finds its readers there."""


class WorkerSettings(Group):
    """One process."""

    slot: int | None = Field(
        None,
        ge=0,
        description="number of this replica, for a role whose replicas keep theirs: a restarted one is back at once."
        " Of two with one number the later wins and the other ends; empty: any number of equal replicas",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="of structured logs")
    log_json: bool = Field(False, description="logs as JSON lines")
    data_dir: Path | None = Field(
        None, description="the embedded broker's directory; empty: the user's data folder"
    )
    ready_file: Path | None = Field(None, description="touched when the service is ready")
    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65_535,
        description="where /metrics, /healthz and /readyz are served; 0: a free port; empty: nowhere."
        " 'combee up' gives each worker its own, from this one on",
    )
    metrics_host: str = Field("127.0.0.1", min_length=1, description="the address for that port")
    dead_letters_per_minute: int = Field(
        30,
        ge=1,
        description="so many turn /readyz red; reflect and scan hold back the playbook that causes them, or stop"
        " where the model's replies are at fault",
    )
