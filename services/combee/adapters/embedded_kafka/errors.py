"""What can keep the embedded broker from running; every message names the remedy."""

from combee.ports import FatalError


class EmbeddedKafkaError(FatalError):
    """Base of everything that goes wrong with the embedded broker."""


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
