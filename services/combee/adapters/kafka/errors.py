"""Kafka's errors become one of the three kinds, with the cause kept."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from aiokafka import errors as kafka

from combee.ports import ConfigurationError, FatalError, FencedError, PoisonError, TransientError

FENCED = (
    kafka.ProducerFenced,
    kafka.InvalidProducerEpoch,
    kafka.InvalidProducerIdMapping,
    kafka.OutOfOrderSequenceNumber,
)
BROKEN_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""A broker that goes down in the middle of a handshake: that heals."""
REFUSED = (
    kafka.TopicAuthorizationFailedError,
    kafka.GroupAuthorizationFailedError,
    kafka.ClusterAuthorizationFailedError,
    kafka.TransactionalIdAuthorizationFailed,
    kafka.AuthenticationFailedError,
    kafka.SaslAuthenticationFailed,
    kafka.UnsupportedSaslMechanismError,
    kafka.IllegalSaslStateError,
    kafka.UnsupportedVersionError,
    kafka.InvalidTopicError,
    ssl.SSLError,
)
"""What waiting does not heal: credentials, rights, TLS, versions. Everything else of the network is waited for."""


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn aiokafka's errors into ours; ``doing`` starts the message.

    Raises
    ------
    FencedError, FatalError, ConfigurationError, PoisonError, TransientError
        By type; whatever is not known to be hopeless is transient, so nothing is given up too early.
    """
    try:
        yield
    except FENCED as error:
        raise FencedError(f"{doing}: a newer owner took over ({type(error).__name__})") from error
    except (kafka.MessageSizeTooLargeError, kafka.RecordTooLargeError) as error:
        raise PoisonError(f"{doing}: the record is too large for the topic (max.message.bytes)") from error
    except kafka.OffsetOutOfRangeError as error:
        raise FatalError(
            f"{doing}: the log no longer holds the committed offset: raise the topic's retention, and see"
            " 'combee ledger' for what expired before it was read"
        ) from error
    except BROKEN_OFF as error:
        raise TransientError(f"{doing}: {type(error).__name__}: {error}") from error
    except REFUSED as error:
        raise ConfigurationError(f"{doing}: {type(error).__name__}: {error}") from error
    except (kafka.KafkaError, OSError, TimeoutError) as error:
        raise TransientError(f"{doing}: {type(error).__name__}: {error}") from error
