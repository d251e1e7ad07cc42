"""Tell from a broker's log why it did not start."""

from combee.adapters.embedded_kafka.errors import (
    BrokerStartError,
    DirectoryInUseError,
    DiskFullError,
    EmbeddedKafkaError,
    PortTakenError,
)

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
    """Return the error that fits what the log of a broker that ended says."""
    for signs, kind, remedy in _SIGNS:
        if any(sign in log for sign in signs):
            return kind(f"{node} ended at its start. {remedy} The end of its log:\n{tail(log)}")
    return BrokerStartError(
        f"{node} ended at its start. If the reason below is no help, delete the data directory to begin "
        f"anew, or run your own Kafka and set COMBEE_BOOTSTRAP_SERVERS. The end of its log:\n{tail(log)}"
    )
