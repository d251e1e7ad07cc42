"""Errors that only a person can fix; ``combee.adapters.ports`` defines transient and poisonous errors as well."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # "combee --help" and other code that only reports errors must not load pydantic models
    from combee_schemas.base import Message


class CombeeError(Exception):
    """Base of all errors that Combee raises on purpose."""


class FatalError(CombeeError):
    """The process must stop until somebody acts; the message names the remedy. The exit status is non-zero."""


class ConfigurationError(FatalError):
    """Settings, credentials, TLS or rights are wrong; waiting does not help."""

    exit_code = 2
    """Exit status of the process, the same as for wrong usage of the command line."""


class OtherVersionError(ConfigurationError):
    """A record of a version that this process cannot read: the record is valid, the process is too old or too new.

    It is not a ``CodecError``, so that code which skips or dead-letters unreadable records does not do so here.
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
