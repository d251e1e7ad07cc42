"""The base of all settings groups: sources of values, and checks of the files."""

import tomllib
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, get_args

from pydantic import AliasChoices, SecretStr, ValidationInfo, field_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from combee.adapters.ports import ConfigurationError
from combee.process.secret_files import secrets_in_files
from combee.process.trusted_files import read_trusted

TOML_FILE = "combee.toml"
"""The configuration file in the working directory, read unless another file is named."""
NAMED_BY = "COMBEE_CONFIG"


class SettingsError(ConfigurationError):
    """A setting is wrong; the command line exits with 2, as for a wrong option."""


class SettingsGroup(BaseSettings):
    """One group of settings; each service receives only its own."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        env_prefix="COMBEE_", extra="ignore", frozen=True, populate_by_name=True
    )

    ALSO_IN_FILES: ClassVar[tuple[str, ...]] = ()
    """Settings that are no credentials and may stand in a file as secrets do."""

    @field_validator("*", mode="before")
    @classmethod
    def _empty_is_no_path(cls, value: object, info: ValidationInfo) -> object:
        """Treat an empty path as unset; ``Path("")`` would be the working directory."""
        field = cls.model_fields[info.field_name or ""]
        return None if value == "" and Path in get_args(field.annotation) else value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - fixed by pydantic-settings
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources in order of priority: flags, files of secrets, environment, TOML."""
        assert isinstance(env_settings, EnvSettingsSource)  # noqa: S101 - the library always passes this type
        environ = {name.upper(): value for name, value in env_settings.env_vars.items() if value}
        names = {f"COMBEE_{name.upper()}": name for name in cls.fields_in_files()}
        try:
            secrets = {names[name]: value for name, value in secrets_in_files(environ, names).items()}
        except ConfigurationError as error:
            raise SettingsError(str(error)) from error
        in_file = file_values(environ.get(NAMED_BY))
        secret_files, toml = (InitSettingsSource(settings_cls, values) for values in (secrets, in_file))
        return init_settings, secret_files, env_settings, toml, file_secret_settings

    @classmethod
    @cache
    def secret_fields(cls) -> tuple[str, ...]:
        """Return the names of the group's secrets."""
        fields = cls.model_fields
        kinds = {name: get_args(info.annotation) for name, info in fields.items()}
        return tuple(
            name for name, kind in kinds.items() if SecretStr in kind and f"{name}_file" not in fields
        )

    @classmethod
    def fields_in_files(cls) -> tuple[str, ...]:
        """Return the names of the settings whose value may stand in a file that the environment names."""
        return (*cls.secret_fields(), *cls.ALSO_IN_FILES)

    @classmethod
    @cache
    def names(cls) -> frozenset[str]:
        """Return all names under which a setting of the group can be given, in lower case."""
        return frozenset(name for field in cls.model_fields for name in names_of(cls, field))


@cache
def names_of(group: type[SettingsGroup], field: str) -> frozenset[str]:
    """Return all names under which a setting can be given, in lower case."""
    alias = group.model_fields[field].validation_alias
    aliases = alias.choices if isinstance(alias, AliasChoices) else [f"combee_{field}"]
    file = {f"combee_{field}_file"} if field in group.fields_in_files() else set()
    return frozenset((field, *file, *(str(name).lower() for name in aliases)))


def file_values(named: str | None) -> dict[str, Any]:
    """Return the values in the configuration file: the named one, else the working directory's if it exists.

    Raises
    ------
    SettingsError
        If others may have written it, or it cannot be read.
    """
    path = Path(named or TOML_FILE)
    try:
        return tomllib.loads(read_trusted(path))
    except FileNotFoundError:
        if not named:
            return {}
        raise SettingsError(f"{NAMED_BY}: there is no {path}") from None
    except ConfigurationError as error:
        raise SettingsError(str(error)) from error
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error


def is_any_given(names: AbstractSet[str], given: Iterable[str]) -> bool:
    """Return whether one of these names was given, in any case."""
    return not names.isdisjoint(name.lower() for name in given)
