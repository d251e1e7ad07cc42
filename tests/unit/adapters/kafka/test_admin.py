"""What the administration makes of a broker's answers."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, GroupCoordinatorNotAvailableError

from combee.adapters.kafka import admin
from combee.adapters.kafka.connection import Connection
from combee.ports import ConfigurationError, TransientError

MEMBER = ("member-1",)


class Broker:
    """A client of aiokafka whose broker has one group."""

    def __init__(self, code: int, members: Sequence[Any]) -> None:
        self._group = (code, "t.shuffle", "Stable", "consumer", "range", members, 0)

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def describe_consumer_groups(self, _groups: Sequence[str]) -> list[Any]:
        return [SimpleNamespace(groups=[self._group])]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (GroupCoordinatorNotAvailableError.errno, TransientError),
        (GroupAuthorizationFailedError.errno, ConfigurationError),
    ],
)
async def test_a_group_that_cannot_be_described_is_not_taken_for_an_empty_one(
    monkeypatch: pytest.MonkeyPatch, code: int, expected: type[Exception]
) -> None:
    subject = admin.KafkaAdmin(Connection(bootstrap_servers="b:1", prefix="t"))
    monkeypatch.setattr(admin, "AIOKafkaAdminClient", lambda **_: Broker(0, [MEMBER, MEMBER]))
    assert await subject.members("shuffle") == 2
    monkeypatch.setattr(admin, "AIOKafkaAdminClient", lambda **_: Broker(code, []))
    with pytest.raises(expected):
        await subject.members("shuffle")
