"""Loading every setting once at start: flag over environment (``COMBEE_*``) over ``combee.toml`` over default."""

import json
import os
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_settings import SettingsError as UnparsedError

from combee.core.batching.sizing.policy import LARGEST_CHOICE
from combee.core.gate.policy import GatePolicy
from combee.core.text.redact import redacted
from combee.process.settings.batch import BatchSettings
from combee.process.settings.evaluation import EvaluationSettings
from combee.process.settings.gate import GateSettings
from combee.process.settings.gateway import GatewaySettings
from combee.process.settings.group import (
    NAMED_BY,
    TOML_FILE,
    SettingsError,
    SettingsGroup,
    file_values,
    is_any_given,
    names_of,
)
from combee.process.settings.kafka import KafkaSettings
from combee.process.settings.model import ModelSettings
from combee.process.settings.playbook import PlaybookSettings, SpendSettings
from combee.process.settings.sizing import SizingSettings
from combee.process.settings.sources import SourceSettings
from combee.process.settings.tenants import TenantSettings
from combee.process.settings.worker import WorkerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All groups."""

    kafka: KafkaSettings
    model: ModelSettings
    batch: BatchSettings
    sizing: SizingSettings
    playbook: PlaybookSettings
    spend: SpendSettings
    tenants: TenantSettings
    sources: SourceSettings
    evaluation: EvaluationSettings
    gate: GateSettings
    gateway: GatewaySettings
    worker: WorkerSettings
    origins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Where each setting that is no default comes from, in words."""

    @property
    def gates(self) -> GatePolicy:
        """The judges of every playbook; a public one has at least ``approve``."""
        return replace(self.gate.policy(self.batch.salt), postures=self.batch.postures)

    def secrets(self) -> list[SecretStr]:
        """Return the secrets that are set."""
        groups = [getattr(self, name) for name in GROUPS]
        values = (getattr(group, name) for group in groups for name in type(group).secret_fields())
        return [value for value in values if value is not None]


def environment() -> dict[str, str]:
    """Return a copy of the environment, for child processes and for finding Java."""
    return dict(os.environ)  # noqa: TID251 - the one place


GROUPS: dict[str, type[SettingsGroup]] = {
    "kafka": KafkaSettings,
    "model": ModelSettings,
    "batch": BatchSettings,
    "sizing": SizingSettings,
    "playbook": PlaybookSettings,
    "spend": SpendSettings,
    "tenants": TenantSettings,
    "sources": SourceSettings,
    "evaluation": EvaluationSettings,
    "gate": GateSettings,
    "gateway": GatewaySettings,
    "worker": WorkerSettings,
}


def secrets() -> tuple[str, ...]:
    """Return the names of all settings that are secret."""
    return tuple(dict.fromkeys(name for group in GROUPS.values() for name in group.secret_fields()))


def in_files() -> tuple[str, ...]:
    """Return the names of all settings whose value may stand in a file that the environment names."""
    return tuple(dict.fromkeys(name for group in GROUPS.values() for name in group.fields_in_files()))


SUCCESSORS: Mapping[str, str] = {
    "sources": "COMBEE_TRUST=team counts proven sources (lab: declared names)",
    "source_share": "COMBEE_TRUST=team gives each source its part where others wait",
    "source_operations": "COMBEE_TRUST=team bounds what one source may change",
    "new_source_batches": "COMBEE_TRUST=public proposes what too few proven sources say",
    "propose_flagged": "COMBEE_TRUST=public shows nothing that too few proven sources say",
    "probation_sources": "COMBEE_TRUST=public with COMBEE_COLLUDERS, one less than the sources that it named",
    "probation_batches": "COMBEE_TRUST=public with COMBEE_COLLUDERS",
}
"""Settings that a posture replaced, and which."""


def _check_replaced(stated: Iterable[str]) -> None:
    """Refuse the name of a setting that a posture replaced."""
    names = {name.lower().removeprefix("combee_"): name for name in stated}
    for old, posture in SUCCESSORS.items():
        if old in names:
            raise SettingsError(
                f"{names[old]} is not a setting any more: {posture}; remove it (docs/guide/trust.md)"
            )


def load_settings(**flags: object) -> Settings:
    """Read all settings once; ``flags`` (those that are not None) win over the environment and the file.

    Raises
    ------
    SettingsError
        If a value is wrong; the message names the variable.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    variables = environment()
    in_file = file_values(variables.get(NAMED_BY))
    ours = (name for name, value in variables.items() if value and name.upper().startswith("COMBEE_"))
    _check_replaced((*given, *ours, *in_file))
    if unknown := [
        name for name in given if not any(name in group.model_fields for group in GROUPS.values())
    ]:
        raise SettingsError(
            f"{', '.join(unknown)}: no such setting; what docs/reference/settings.md does not list is a constant"
        )
    stated = {name.lower() for name in (*given, *variables, *in_file)}
    settings = Settings(**{name: _load(group, given, stated) for name, group in GROUPS.items()})  # type: ignore[arg-type]
    if not variables.get(NAMED_BY):
        _check_found_file(in_file.keys(), {*given, *(name for name, value in variables.items() if value)})
    return _with_start(replace(settings, origins=_origins(given, variables, in_file)))


SET_BY = "COMBEE_SET_BY"
"""Variable in which ``combee up``, whose services get every setting as a variable, says where each comes from."""


def _origins(
    given: Mapping[str, object], variables: Mapping[str, str], in_file: Mapping[str, object]
) -> dict[str, str]:
    """Return where each setting that is no default comes from: flag, environment or file, in this order."""
    if told := variables.get(SET_BY):
        return {str(name): str(origin) for name, origin in json.loads(told).items()}
    stated = {name.lower(): name for name, value in variables.items() if value}
    path = variables.get(NAMED_BY) or TOML_FILE
    lower = {name.lower() for name in in_file}
    origins: dict[str, str] = {}
    for group in GROUPS.values():
        for name in group.model_fields:
            names = names_of(group, name)
            variable = next((stated[known] for known in sorted(names - {name}) if known in stated), "")
            if name in given:
                origins[name] = "flag"
            elif variable:
                origins[name] = f"environment: {variable}"
            elif not names.isdisjoint(lower):
                origins[name] = f"file: {path}"
    return origins


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """A setting as it is in force."""

    name: str
    value: str
    """Its value in words; a secret is never part of it."""
    origin: str
    about: str
    group: str


def in_force(settings: Settings) -> list[InForce]:
    """Return every setting with its value and where it comes from, group by group."""
    shown: dict[str, InForce] = {}
    for group in GROUPS:
        values = getattr(settings, group)
        for name, about in type(values).model_fields.items():
            shown.setdefault(
                name,
                InForce(
                    name=name,
                    value=_shown(getattr(values, name)),
                    origin=settings.origins.get(name, "default"),
                    about=redacted(about.description or ""),
                    group=(type(values).__doc__ or group).partition("\n")[0].rstrip("."),
                ),
            )
    return list(shown.values())


def _shown(value: object) -> str:
    if isinstance(value, SecretStr):
        return "set, not shown"
    if isinstance(value, BaseModel):
        return redacted(value.model_dump_json(exclude_defaults=True))
    if isinstance(value, dict):
        return redacted(", ".join(f"{name}: {_shown(each)}" for name, each in value.items())) or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return "not set" if value in (None, "") else redacted(str(value))


def _with_start(settings: Settings) -> Settings:
    """Return settings whose first batches are no larger than the controller may choose."""
    batch, sizing = settings.batch, settings.sizing
    if sizing.fixed_size is not None or batch.batch_size <= LARGEST_CHOICE:
        return settings
    return replace(settings, batch=batch.model_copy(update={"batch_size": LARGEST_CHOICE}))


SENT_TO = (
    ("model", "base_url", "api_key"),
    ("evaluation", "eval_base_url", "eval_api_key"),
    ("model", "embedding_base_url", "embedding_api_key"),
    ("kafka", "bootstrap_servers", "sasl_password"),
    ("kafka", "bootstrap_servers", "oauth_client_secret"),
    ("kafka", "bootstrap_servers", "aws_region"),
    ("kafka", "oauth_token_url", "oauth_client_secret"),
)
"""Group, the setting that names an address, and the secret that is sent there."""
HEADERS = "OPENAI_CUSTOM_HEADERS"
"""Variable with headers, often keys, that OpenAI's client adds to each request to any server."""
ASKED = frozenset({"base_url", "eval_base_url", "embedding_base_url"})
"""Addresses that OpenAI's client asks."""
NEVER_IN_A_FOUND_FILE = (
    ("evaluation", "eval_function", "code that it names must not run"),
    ("evaluation", "eval_endpoint", "playbooks must not be sent to an address that it names"),
    ("gateway", "gateway_keys", "keys that it names must not open the gateway"),
    ("gateway", "gateway_keys_file", "keys that it names must not open the gateway"),
    ("gateway", "gateway_cors_origins", "pages of an origin that it names must not use the gateway"),
    ("model", "azure_endpoint", "keys and tokens for Azure must not be sent to an address that it names"),
    ("worker", "otel_endpoint", "telemetry must not be sent to an address that it names"),
    ("kafka", "aws_region", "tokens of this machine's AWS role must not be sent to an address that it names"),
)
"""Group, setting, and the reason."""


def _check_found_file(in_file: AbstractSet[str], meant: AbstractSet[str]) -> None:
    """Refuse settings that an unnamed file in the working directory may not set (``meant``: flags, variables)."""
    sent = [
        (group, address, "secrets of the environment must not be sent to an address that it names")
        for group, address, secret in SENT_TO
        if is_any_given(names_of(GROUPS[group], secret), meant) or (address in ASKED and HEADERS in meant)
    ]
    for group, name, reason in (*sent, *NEVER_IN_A_FOUND_FILE):
        names = names_of(GROUPS[group], name)
        if is_any_given(names, in_file) and not is_any_given(names, meant):
            raise SettingsError(
                f"{name} stands in the working directory's {TOML_FILE}, and {reason}: set"
                f" COMBEE_{name.upper()}, or name the file if it is yours: {NAMED_BY}={TOML_FILE}"
            )


def _load(group: type[SettingsGroup], given: Mapping[str, object], stated: AbstractSet[str]) -> SettingsGroup:
    # Saves time: the library checks each variable and field for each source, and most groups are in none.
    if group.names().isdisjoint(stated):
        return group(_build_sources=((), {}))
    try:
        return group(**{name: value for name, value in given.items() if name in group.model_fields})  # type: ignore[arg-type]
    except ValidationError as error:
        problems = "; ".join(
            f"COMBEE_{'_'.join(map(str, problem['loc'])).upper()}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_input=False)
        )
        raise SettingsError(f"wrong setting: {problems} (environment or {TOML_FILE})") from error
    except UnparsedError as error:
        raise SettingsError(f"wrong setting: {error} (a table in the environment is JSON)") from error
