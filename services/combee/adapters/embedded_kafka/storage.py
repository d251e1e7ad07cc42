"""Turn the file system's errors into ones that name the remedy."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from combee.adapters.embedded_kafka.errors import DiskFullError, EmbeddedKafkaError


@contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Translate what goes wrong with files below ``folder``."""
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
