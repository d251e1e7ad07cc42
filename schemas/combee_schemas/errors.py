"""Errors that only a person can mend; ``combee.adapters.ports`` has them next to transient and poisonous errors."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # who only reports an error, such as "combee --help", loads no models
    from combee_schemas.base import Message


class CombeeError(Exception):
    """Base of every error Combee raises on purpose."""


class FatalError(CombeeError):
    """Nothing can go on until somebody acts; the message names the remedy. The process exits non-zero."""


class ConfigurationError(FatalError):
    """Waiting helps nothing: settings, credentials, TLS or rights are wrong."""

    exit_code = 2
    """With what the process ends; wrong usage of the command line is the same."""


class OtherVersionError(ConfigurationError):
    """A record of a version that this process does not read: nothing is wrong with it, the process is the wrong one.

    It is no ``CodecError``: who passes over or buries what cannot be read must not do so with this.
    """

    def __init__(self, kind: "type[Message]", version: int) -> None:
        known, is_newer = kind.version_number, version > kind.version_number
        remedy = (
            f"knows up to version {known}: upgrade it"
            if is_newer
            else f"reads version {known} alone: upgrade what wrote it"
        )
        text = f"of type {kind.type}, version {version}; this process {remedy}"
        again = ", then 'combee dlq retry' sends the record again" if is_newer else ""
        self.for_a_dead_letter = f"it is {text}{again}"
        super().__init__(f"a record is {text} (the record stays where it is, nothing is lost)")
