"""What every group of settings shares: where its values come from."""

from typing import ClassVar

from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from combee.ports import ConfigurationError

TOML_FILE = "combee.toml"


class SettingsError(ConfigurationError):
    """A setting is wrong; the command line exits with 2, as for a wrong option."""


class Group(BaseSettings):
    """One group of settings; each service receives only its own."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        env_prefix="COMBEE_", extra="ignore", frozen=True, toml_file=TOML_FILE, populate_by_name=True
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - fixed by pydantic-settings
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flag, environment, TOML, secret files."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls), file_secret_settings
