"""A client on a deployment in memory."""

from collections.abc import Iterator

import pytest

from combee.sdk import Client
from support.sdk import UnreliableTransport


@pytest.fixture
def memory() -> UnreliableTransport:
    return UnreliableTransport()


@pytest.fixture
def client(memory: UnreliableTransport) -> Iterator[Client]:
    with Client(transport=lambda: memory) as made:
        yield made
