import errno
from pathlib import Path

import pytest

from combee.adapters.embedded_kafka import (
    BrokerStartError,
    DirectoryInUseError,
    DiskFullError,
    EmbeddedKafkaError,
    PortTakenError,
)
from combee.adapters.embedded_kafka.errors import TAIL_CHARACTERS, diagnose, storage_errors
from support.rows import each_row


@each_row(
    ("line", "kind", "remedy"),
    [
        ("Caused by: java.net.BindException: Address already in use", PortTakenError, "end the process"),
        ("java.io.IOException: No space left on device", DiskFullError, "free some space"),
        ("Failed to acquire lock on file .lock in /x", DirectoryInUseError, "wait until it is gone"),
        ("OpenJDK: Could not reserve enough space for heap", BrokerStartError, "end other programs"),
        ("something nobody has seen", BrokerStartError, "delete the data directory"),
    ],
)
def test_the_log_tells_what_is_wrong_and_what_to_do(
    line: str, kind: type[EmbeddedKafkaError], remedy: str
) -> None:
    error = diagnose("Kafka node 1", f"INFO before\n{line}\nINFO after")

    assert type(error) is kind
    assert remedy in str(error)
    assert line in str(error)


def test_only_the_end_of_a_long_log_is_shown() -> None:
    assert len(str(diagnose("Kafka node 1", "x" * 1_000_000))) < TAIL_CHARACTERS + 500


def test_an_empty_log_is_said_to_be_empty() -> None:
    assert "(it is empty)" in str(diagnose("Kafka node 1", ""))


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, DiskFullError), (errno.EACCES, EmbeddedKafkaError)]
)
def test_the_file_systems_errors_name_the_folder(number: int, kind: type[EmbeddedKafkaError]) -> None:
    with pytest.raises(kind, match="choose another directory") as raised, storage_errors(Path("the-folder")):
        raise OSError(number, "said the system")

    assert "the-folder" in str(raised.value)
