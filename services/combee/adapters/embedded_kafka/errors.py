"""Errors of the embedded broker; every message names the remedy."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from combee.adapters.ports import FatalError


class EmbeddedKafkaError(FatalError):
    """Base of all errors of the embedded broker."""


class JavaNotFoundError(EmbeddedKafkaError):
    """No Java 17 or newer anywhere it was looked for."""


class DownloadError(EmbeddedKafkaError):
    """A jar of the broker could not be fetched."""


class JarMismatchError(EmbeddedKafkaError):
    """A fetched jar is not the one that was pinned."""


class PortTakenError(EmbeddedKafkaError):
    """Another process listens on a port that the broker needs."""


class DiskFullError(EmbeddedKafkaError):
    """No space is left for the broker's data or its jars."""


class DirectoryInUseError(EmbeddedKafkaError):
    """Another process has the data directory."""


class BrokerStartError(EmbeddedKafkaError):
    """The broker ended, or did not become ready in time, for a reason its log must tell."""


TAIL_CHARACTERS = 4_000

_SIGNS: tuple[tuple[tuple[str, ...], type[EmbeddedKafkaError], str], ...] = (
    (
        ("No space left on device", "Disk quota exceeded"),
        DiskFullError,
        "The disk is full: free some space, or choose another data directory.",
    ),
    (
        ("Address already in use", "java.net.BindException"),
        PortTakenError,
        "A port of the broker is taken: end the process that listens on it, or start on new ports.",
    ),
    (
        ("Failed to acquire lock on file .lock",),
        DirectoryInUseError,
        "Another broker still has this data directory: wait until it is gone, or end it, and try again.",
    ),
    (
        ("OutOfMemoryError", "Could not reserve enough space", "Cannot allocate memory"),
        BrokerStartError,
        "Too little memory for the broker (it wants about 400 MB): end other programs and try again.",
    ),
)


def tail(log: str) -> str:
    """Return the end of a log, for a message."""
    return log[-TAIL_CHARACTERS:].strip() or "(it is empty)"


def diagnose(node: str, log: str) -> EmbeddedKafkaError:
    """Return the error that explains the log of a broker that ended."""
    for signs, kind, remedy in _SIGNS:
        if any(sign in log for sign in signs):
            return kind(f"{node} ended at its start. {remedy} The end of its log:\n{tail(log)}")
    return BrokerStartError(
        f"{node} ended at its start. If the reason below does not help, delete the data directory to begin "
        f"anew, or run your own Kafka and set COMBEE_BOOTSTRAP_SERVERS. The end of its log:\n{tail(log)}"
    )


@contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Translate errors of files below ``folder``."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                f"The disk is full: free some space for {folder}, or choose another directory."
            ) from error
        raise EmbeddedKafkaError(
            f"Cannot use {folder}: {error}. Make it writable, or choose another directory."
        ) from error
