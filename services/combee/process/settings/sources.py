"""Settings of sources: keys that prove sources, and this process's own name and key."""

import base64
import binascii
import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from combee.core.names.sources import GATEWAY_KEY, MAX_KEY_NAME, MAX_NAME, UNPROVEN, Signer
from combee.process.settings.group import SettingsError, SettingsGroup
from combee.process.trusted_files import read_trusted

VARIABLE = "COMBEE_SOURCES_FILE"
SHORTEST = 16
KEY_BYTES = 32
LONGEST_NAME, LONGEST_KEY_NAME = MAX_NAME, MAX_KEY_NAME
"""Maximum lengths of the names of a declared source and of a gateway's key."""


def _declared(name: str) -> str:
    if name == UNPROVEN or name.startswith(GATEWAY_KEY) or "\0" in name:
        raise ValueError(f"neither '{UNPROVEN}' nor a name that begins with '{GATEWAY_KEY}'")
    return name


Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME), AfterValidator(_declared)]


class DeclaredSource(BaseModel):
    """One source: its name and its key."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: Name
    secret: SecretStr | None = Field(None, min_length=SHORTEST)
    public_key: str | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> "DeclaredSource":
        if (self.secret is None) == (self.public_key is None):
            raise ValueError("give either secret or public_key")
        if self.public_key is not None:
            try:
                size = len(base64.b64decode(self.public_key, validate=True))
            except binascii.Error:
                size = 0
            if size != KEY_BYTES:
                raise ValueError("public_key is not an Ed25519 key: base64 of its 32 bytes")
        return self


class SourcesFile(BaseModel):
    """The content of the file of sources."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    services_secret: SecretStr | None = Field(None, min_length=SHORTEST)
    sources: tuple[DeclaredSource, ...] = ()

    @model_validator(mode="after")
    def _each_once(self) -> "SourcesFile":
        if len({source.name for source in self.sources}) < len(self.sources):
            raise ValueError("a source appears twice")
        return self


class SourceSettings(SettingsGroup):
    """Sources and their keys."""

    sources_file: Path | None = Field(
        None,
        description="TOML file with the secrets and public keys of sources, as in docs/guide/trust.md",
    )
    source_of_prefix: Annotated[str, AfterValidator(lambda name: _declared(name) if name else "")] = Field(
        "",
        max_length=MAX_NAME,
        description="source of all messages that prove no other; set it only if access rights let that"
        " source alone write to the topics",
    )
    source: Annotated[str, AfterValidator(lambda name: _declared(name) if name else "")] = Field(
        "",
        max_length=MAX_NAME,
        description="source name that `combee publish`, `combee learn` and the SDK declare",
    )
    source_secret: SecretStr | None = Field(
        None, description="secret that proves this source name; environment only"
    )

    def signer(self) -> Signer | None:
        """Return the source that this process declares; None: it declares none."""
        secret = self.source_secret.get_secret_value().encode() if self.source_secret else None
        return Signer(name=self.source, secret=secret) if self.source else None

    def services_secret(self) -> bytes | None:
        """Return the secret with which gateway and reflect vouch for sources; None: there is none."""
        secret = self.file().services_secret
        return secret.get_secret_value().encode() if secret else None

    def file(self) -> SourcesFile:
        """Return the content of the file; empty if no file is named.

        Raises
        ------
        SettingsError
            If it cannot be read; no secret is ever part of the message.
        """
        path = self.sources_file
        if path is None:
            return SourcesFile()
        try:
            return SourcesFile.model_validate(tomllib.loads(read_trusted(path)))
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{VARIABLE}: {path} cannot be read") from error
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            raise SettingsError(f"{VARIABLE}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        except tomllib.TOMLDecodeError:
            raise SettingsError(f"{VARIABLE}: {path} is not TOML") from None
