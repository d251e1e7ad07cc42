"""Every setting: flag over environment (``COMBEE_*``) over ``combee.toml`` over default, read once at start."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, Field, SecretStr, ValidationError
from pydantic_settings import SettingsError as UnparsedError

from combee.settings.gateway import GatewaySettings
from combee.settings.group import NAMED_BY, TOML_FILE, Group, SettingsError, file_values, stands_in
from combee.settings.sizing import SizingSettings
from combee.settings.spending import SpendSettings


class KafkaSettings(Group):
    """Where the log is and how its topics are laid out."""

    bootstrap_servers: str | None = Field(None, description="Kafka brokers; empty: the embedded broker")
    topic_prefix: str = Field(
        "combee", pattern=r"^[A-Za-z0-9._-]{1,80}$", description="name space of all topics"
    )
    partitions: int = Field(
        4, ge=1, description="partitions of the topics keyed by playbook; fixed at creation"
    )
    scan_partitions: int = Field(
        8, ge=1, description="partitions of traces and scan topics; fixed at creation"
    )
    replication_factor: int = Field(1, ge=1, description="replicas of each topic")
    session_timeout_s: float = Field(10, gt=0, description="a silent worker is replaced after this (s)")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="how to connect"
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "SCRAM-SHA-512", description="with SASL_*"
    )
    sasl_username: str | None = Field(None, description="with SASL_*")
    sasl_password: SecretStr | None = Field(None, description="with SASL_*; environment only")
    ssl_cafile: Path | None = Field(None, description="CA certificates for SSL and SASL_SSL")


class ModelSettings(Group):
    """Which model, and how hard it may be worked."""

    model: str | None = Field(None, description="such as openai/gpt-4.1-mini, ollama/llama3 or a plain name")
    base_url: str | None = Field(
        None,
        validation_alias=AliasChoices("base_url", "COMBEE_BASE_URL", "OPENAI_BASE_URL"),
        description="any OpenAI-compatible server",
    )
    api_key: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("COMBEE_API_KEY", "OPENAI_API_KEY"),
        description="environment only",
    )
    model_timeout_s: float = Field(120, gt=0, description="one model call (s)")
    llm_concurrency: int = Field(8, ge=1, description="model calls at once per worker")
    requests_per_minute: int | None = Field(None, ge=1, description="rate limit per worker")
    tokens_per_minute: int | None = Field(None, ge=1, description="rate limit per worker")
    max_output_tokens: int | None = Field(None, ge=1, description="asked of the model per call")


class BatchSettings(Group):
    """When windows close and how a batch is cut (paper defaults: p = 2, k = ⌊√n⌋)."""

    batch_size: int = Field(40, ge=1, le=2000, description="original reflections per batch")
    copies: int = Field(2, ge=1, le=8, description="p: copies of each reflection")
    method: str = Field(
        "ace", min_length=1, description="how prompts are written and read: ace, gepa or one installed"
    )
    aggregate_tokens: int = Field(
        32_000, ge=500, description="reflections or proposals that one aggregator call may read (tokens)"
    )
    carry: bool = Field(
        True, description="pass on proposals that a combine neither used nor dropped by name (recorded)"
    )
    fan_in: int = Field(32, ge=2, description="children per node above level 0")
    max_levels: int = Field(4, ge=2, le=4, description="levels of the scan tree at most")
    max_wait_s: float = Field(30, gt=0, description="an unfilled window closes after this (s)")
    max_span: int = Field(100_000, ge=1, description="records a window's oldest reflection may lag (records)")
    max_batch_bytes: int = Field(8 << 20, ge=1 << 18, description="reflections per batch (bytes)")
    max_group_bytes: int = Field(
        700 << 10, ge=1 << 10, le=700 << 10, description="reflections per group (bytes)"
    )
    window_memory_bytes: int = Field(
        64 << 20, ge=0, description="bodies held in memory by all windows (bytes)"
    )
    max_inflight_batches: int = Field(1, ge=1, le=16, description="unpublished batches per playbook")
    batch_timeout_s: float = Field(900, gt=0, description="re-emit a batch without a version after this (s)")
    batch_retries: int = Field(3, ge=0, description="re-emissions before a batch is closed degraded")
    duplicate_horizon: int = Field(
        2000,
        ge=1,
        description="how far back in 'batches' a repeat is recognised, per partition; a batch takes two (offsets)",
    )


class PlaybookSettings(Group):
    """How large a playbook may grow."""

    playbook_tokens: int = Field(
        16_000, ge=100, le=24_000, description="token budget of a playbook's entries (tokens)"
    )


class WorkerSettings(Group):
    """One process."""

    slot: int = Field(0, ge=0, description="number of this replica of its role; each replica needs its own")
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
        description="so many within a minute turn /readyz of a worker red; reflect and scan then hold back the"
        " playbook that causes them, or stop where the model's replies are at fault",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All groups."""

    kafka: KafkaSettings
    model: ModelSettings
    batch: BatchSettings
    sizing: SizingSettings
    playbook: PlaybookSettings
    spend: SpendSettings
    gateway: GatewaySettings
    worker: WorkerSettings


def environment() -> dict[str, str]:
    """Return a copy of the environment, for child processes and for finding Java."""
    return dict(os.environ)  # noqa: TID251 - the one place


GROUPS: dict[str, type[Group]] = {
    "kafka": KafkaSettings,
    "model": ModelSettings,
    "batch": BatchSettings,
    "sizing": SizingSettings,
    "playbook": PlaybookSettings,
    "spend": SpendSettings,
    "gateway": GatewaySettings,
    "worker": WorkerSettings,
}


def load_settings(**flags: object) -> Settings:
    """Read all settings once; ``flags`` (those that are not None) win over the environment and the file.

    Raises
    ------
    SettingsError
        If a value is wrong; the message names the variable.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    settings = Settings(**{name: _load(group, given) for name, group in GROUPS.items()})  # type: ignore[arg-type]
    for group, address, secret in SENT_TO:
        _check_address(GROUPS[group], address, secret, given)
    return settings


SENT_TO = (("model", "base_url", "api_key"), ("kafka", "bootstrap_servers", "sasl_password"))
"""Group, address and the secret that goes there."""


def _check_address(group: type[Group], address: str, secret: str, given: dict[str, object]) -> None:
    """Refuse to send a secret of the environment where a file that merely lies in the working directory says."""
    found = {name: value for name, value in environment().items() if value}
    if found.get(NAMED_BY) or not stands_in(_names(group, secret), found):
        return
    if address in given or stands_in(_names(group, address), found):
        return
    if not stands_in(_names(group, address), file_values(None)):
        return
    raise SettingsError(
        f"{address} stands in the working directory's {TOML_FILE}, and secrets of the environment are not sent where"
        f" that says: set COMBEE_{address.upper()}, or name the file if it is yours: {NAMED_BY}={TOML_FILE}"
    )


def _names(group: type[Group], field: str) -> set[str]:
    """Return the names by which a setting is given, in lower case."""
    alias = group.model_fields[field].validation_alias
    others = alias.choices if isinstance(alias, AliasChoices) else [f"combee_{field}"]
    return {field, *(str(one).lower() for one in others)}


def _load(group: type[Group], given: dict[str, object]) -> Group:
    try:
        return group(**{name: value for name, value in given.items() if name in group.model_fields})  # type: ignore[arg-type]
    except ValidationError as error:
        problems = "; ".join(
            f"COMBEE_{'_'.join(map(str, one['loc'])).upper()}: {one['msg']}"
            for one in error.errors(include_url=False, include_input=False)
        )
        raise SettingsError(f"wrong setting: {problems} (environment or {TOML_FILE})") from error
    except UnparsedError as error:
        raise SettingsError(f"wrong setting: {error} (a table in the environment is JSON)") from error
