"""Kafka's errors are translated to our three kinds, with the cause kept."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aiokafka import errors as kafka

from combee.adapters.kafka.tokens import TokenRefusedError
from combee.adapters.ports import (
    CombeeError,
    ConfigurationError,
    FatalError,
    FencedError,
    PoisonError,
    TransientError,
)

FENCED = (
    kafka.ProducerFenced,
    kafka.InvalidProducerEpoch,
    kafka.InvalidProducerIdMapping,
    kafka.OutOfOrderSequenceNumber,
)
BROKEN_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""A broker that goes down in the middle of a handshake: transient."""
CREDENTIALS = (kafka.AuthenticationFailedError, kafka.SaslAuthenticationFailed)
RIGHTS = (
    kafka.TopicAuthorizationFailedError,
    kafka.GroupAuthorizationFailedError,
    kafka.ClusterAuthorizationFailedError,
    kafka.TransactionalIdAuthorizationFailed,
)
REFUSED = (
    *RIGHTS,
    kafka.IllegalSaslStateError,
    kafka.UnsupportedVersionError,
    kafka.InvalidTopicError,
    ssl.SSLError,
)
"""Errors that need an operator. Every other network error is transient."""
PASSWORDS = "COMBEE_SASL_USERNAME, COMBEE_SASL_PASSWORD or COMBEE_SASL_MECHANISM"
TOKENS = (
    "COMBEE_OAUTH_CLIENT_ID, COMBEE_OAUTH_SCOPE or COMBEE_OAUTH_TOKEN_URL: it does not accept their token"
)
OTHER_HOST = (62, 64)
"""OpenSSL's codes for a certificate of another name or address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The rights that a request needs: principal, operation (in Kafka's words) and resources."""

    principal: str
    operation: str
    topics: tuple[str, ...] = ()
    group: str = ""
    transactional_id: str = ""
    settings: str = PASSWORDS
    """The settings that determine the principal."""

    def missing(self, error: Exception) -> str:
        """Return the right that an authorization error reports as missing, and the command that grants it."""
        if isinstance(error, kafka.GroupAuthorizationFailedError):
            return self._denied("Describe" if self.operation == "Describe" else "Read", "group", self.group)
        if isinstance(error, kafka.TransactionalIdAuthorizationFailed):
            return self._denied("Write", "transactional-id", self.transactional_id)
        if isinstance(error, kafka.ClusterAuthorizationFailedError):
            return self._denied("Create" if self.operation == "Create" else "IdempotentWrite", "cluster", "")
        if topics := self._refused_topics(error):
            return self._denied(self.operation, "topic", *sorted(topics))
        # aiokafka does not tell which offsets of a transaction were refused.
        return self._denied(self.operation, "topic", *self.topics, one_of=len(self.topics) > 1)

    @staticmethod
    def _refused_topics(error: Exception) -> tuple[str, ...]:
        """Return the topics that an error names: a fetch names one, other requests a set, some none."""
        match error.args:
            case (str(topic), *_):
                return (topic,)
            case (set() | frozenset() | list() | tuple() as topics, *_):
                return tuple(map(str, topics))
        return ()

    def denied(self, operation: str, topic: str) -> str:
        """Return a message about a missing right on one topic."""
        return self._denied(operation, "topic", topic)

    def _denied(self, operation: str, resource: str, *names: str, one_of: bool = False) -> str:
        options = " ".join(f"--{resource} {name}".rstrip() for name in names)
        grant = f"kafka-acls --add --allow-principal '{self.principal}' --operation {operation} {options}"
        named = ", ".join(names) or "itself"
        on = f"one of the {resource}s {named}" if one_of else f"{resource} {named}"
        return f"{self.principal} has no right to {operation} on {on}: {grant}"


def is_denied(code: int) -> bool:
    """Return whether a broker's error code reports a missing right."""
    return issubclass(kafka.for_code(code), RIGHTS)


@contextmanager
def translated(doing: str, need: Need | None = None) -> Iterator[None]:
    """Turn aiokafka's errors into ours; ``doing`` starts the message, ``need`` describes the rights of the request.

    Raises
    ------
    FencedError, FatalError, ConfigurationError, PoisonError, TransientError
        By type; an unknown error is transient, so that nothing is given up too early.
    """
    try:
        yield
    except (kafka.KafkaError, OSError, TimeoutError) as error:
        raise _ours(doing, _unwrapped(error), need) from error


def _unwrapped(error: Exception) -> Exception:
    """Return the broker's error: aiokafka's sender wraps each error that it does not expect."""
    wrapped = error.__cause__ if type(error) is kafka.KafkaError else None
    return wrapped if isinstance(wrapped, Exception) else error


def _ours(doing: str, error: Exception, need: Need | None) -> CombeeError:
    if isinstance(error, FENCED):
        return FencedError(f"{doing}: a newer owner took over ({type(error).__name__})")
    if isinstance(error, kafka.MessageSizeTooLargeError | kafka.RecordTooLargeError):
        return PoisonError(f"{doing}: the record is too large for the topic (max.message.bytes)")
    if isinstance(error, kafka.OffsetOutOfRangeError):
        return FatalError(
            f"{doing}: the log no longer holds the committed offset: raise the topic's retention, and see"
            " 'combee ledger' for what expired before it was read"
        )
    if refusal := _refusal(error, need):
        return ConfigurationError(f"{doing}: {refusal}")
    return TransientError(f"{doing}: {type(error).__name__}: {error}")


def _refusal(error: Exception, need: Need | None) -> str:
    """Return why an operator has to act, with the remedy; empty for an error that may be temporary."""
    if isinstance(error, RIGHTS) and need:
        return need.missing(error)
    if isinstance(error, TokenRefusedError):
        return str(error.args[0])
    if isinstance(error, CREDENTIALS):
        return (
            f"the broker refuses {need.principal if need else 'the credentials'}: correct"
            f" {need.settings if need else PASSWORDS}"
        )
    if isinstance(error, kafka.UnsupportedSaslMechanismError):
        return (
            "the broker does not offer this SASL mechanism: set COMBEE_SASL_MECHANISM to one that it offers"
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in OTHER_HOST:
            return (
                f"the broker's certificate is for another host ({error.verify_message}): use one of its names in"
                " COMBEE_BOOTSTRAP_SERVERS"
            )
        return (
            f"the broker's certificate is not trusted ({error.verify_message}): set COMBEE_SSL_CAFILE to the file"
            " with the authority that signed it"
        )
    refused = isinstance(error, REFUSED) and not isinstance(error, BROKEN_OFF)
    return f"{type(error).__name__}: {error}" if refused else ""


def refused_certificate(doing: str, error: ssl.SSLError, *, shown: str) -> ConfigurationError | None:
    """Return the error in a broker's TLS alert about the client's certificate, ``shown`` (empty: none), or None."""
    alert = (error.reason or "").upper()
    if not ("ALERT" in alert and ("CERTIFICATE" in alert or "UNKNOWN_CA" in alert)):
        return None
    if not shown:
        return ConfigurationError(f"{doing}: the broker wants a client certificate: set COMBEE_SSL_CERTFILE")
    return ConfigurationError(
        f"{doing}: the broker does not accept the client's certificate ({error.reason}): set COMBEE_SSL_CERTFILE to"
        " one of an authority that it trusts"
    )
