"""What the administration makes of a broker's answers."""

from collections.abc import Sequence
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.admin.config_resource import ConfigResource
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.metadata import MetadataRequest, MetadataRequest_v5, MetadataResponse_v5

from combee.adapters.kafka import admin
from combee.adapters.kafka.connection import Connection
from combee.adapters.ports import ConfigurationError, TransientError
from combee_schemas.topics import BROKERS_TIME

MEMBER = ("member-1",)


class Broker:
    """A client of aiokafka whose new broker first knows no coordinator of the group, and then loads the group."""

    def __init__(self, code: int, members: Sequence[Any]) -> None:
        self._codes = [GroupCoordinatorNotAvailableError.errno, GroupLoadInProgressError.errno]
        self._settled = (code, members)

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def describe_consumer_groups(self, _groups: Sequence[str]) -> list[Any]:
        code, members = (self._codes.pop(0), ()) if self._codes else self._settled
        if code == GroupCoordinatorNotAvailableError.errno:
            raise GroupCoordinatorNotAvailableError  # by aiokafka, which looks for the coordinator itself
        return [SimpleNamespace(groups=[(code, "t.shuffle", "", "consumer", "range", members, 0)])]


@pytest.fixture
def subject(monkeypatch: pytest.MonkeyPatch) -> admin.KafkaAdmin:
    monkeypatch.setattr(admin, "LOOK_AGAIN_S", 0.0)
    return admin.KafkaAdmin(Connection(bootstrap_servers="b:1", prefix="t"))


async def test_the_members_of_a_group_are_known_once_a_new_broker_has_it(
    monkeypatch: pytest.MonkeyPatch, subject: admin.KafkaAdmin
) -> None:
    monkeypatch.setattr(admin, "AIOKafkaAdminClient", lambda **_: Broker(0, [MEMBER, MEMBER]))
    assert await subject.members("shuffle") == 2


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (GroupLoadInProgressError.errno, TransientError),
        (GroupAuthorizationFailedError.errno, ConfigurationError),
    ],
)
async def test_a_group_that_cannot_be_described_is_not_taken_for_an_empty_one(
    monkeypatch: pytest.MonkeyPatch, subject: admin.KafkaAdmin, code: int, expected: type[Exception]
) -> None:
    monkeypatch.setattr(admin, "AIOKafkaAdminClient", lambda **_: Broker(code, []))
    with pytest.raises(expected):
        await subject.members("shuffle", within_s=0.05)


class Leaderless:
    """A client of aiokafka whose cluster has no controller yet."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def create_topics(self, *_: Any, **__: Any) -> None:
        controller: Any = None
        controller.nodeId  # noqa: B018 - as aiokafka's admin client does it

    delete_topics = create_topics


async def test_without_a_controller_a_broker_is_not_ready_and_requests_are_to_be_tried_again(
    monkeypatch: pytest.MonkeyPatch, subject: admin.KafkaAdmin
) -> None:
    monkeypatch.setattr(admin, "AIOKafkaAdminClient", lambda **_: Leaderless())
    assert not await admin.is_ready("b:1")
    with pytest.raises(TransientError, match="no controller now, try again"):
        await subject.create("lessons", 1, 1, {})
    with pytest.raises(TransientError, match="no controller now, try again"):
        await subject.delete("lessons")


class Topicless:
    """A client of aiokafka, and the one below it, whose broker says the same of every topic."""

    def __init__(self, code: int) -> None:
        self._code = code
        self._client = self
        self.requests: list[MetadataRequest_v5] = []

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def get_random_node(self) -> int:
        return 0

    async def send(self, _node: int, request: MetadataRequest) -> MetadataResponse_v5:
        self.requests.append(request.build(MetadataRequest_v5))
        named: list[Any] = [(self._code, topic, False, []) for topic in self.requests[-1].topics]
        return MetadataResponse_v5(0, [], "cluster", 0, named)


async def test_asking_for_a_topic_creates_none_and_tells_denied_from_missing(
    monkeypatch: pytest.MonkeyPatch, subject: admin.KafkaAdmin
) -> None:
    client = Topicless(UnknownTopicOrPartitionError.errno)
    monkeypatch.setattr(admin, "AIOKafkaAdminClient", lambda **_: client)
    assert not await subject.has("restoring")
    (request,) = client.requests
    assert (list(request.topics), request.allow_auto_topic_creation) == (["t.restoring"], False)
    client = Topicless(TopicAuthorizationFailedError.errno)
    with pytest.raises(ConfigurationError, match=r"Describe on topic t\.restoring"):
        await subject.has("restoring")


class Lagging:
    """A client of aiokafka whose broker learns of a topic, and of its configuration, after some requests."""

    def __init__(self, requests: float) -> None:
        self._unknown = requests
        self.config = {"retention.ms": "2592000000"}

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def describe_configs(self, resources: Sequence[ConfigResource]) -> list[Any]:
        self._unknown -= 1
        code = UnknownTopicOrPartitionError.errno if self._unknown >= 0 else 0
        items = [] if code else [(name, value, False, 1) for name, value in self.config.items()]
        return [SimpleNamespace(resources=[(code, "", 2, one.name, items) for one in resources])]

    async def alter_configs(self, resources: Sequence[ConfigResource]) -> list[Any]:
        """Replace the whole configuration, as Kafka does."""
        (self.config,) = (dict(one.configs) for one in resources)
        return [SimpleNamespace(resources=[(0, "", 2, one.name) for one in resources])]


async def test_a_topic_that_a_lagging_broker_does_not_know_yet_keeps_its_configuration(
    monkeypatch: pytest.MonkeyPatch, subject: admin.KafkaAdmin
) -> None:
    client = Lagging(2)
    monkeypatch.setattr(admin, "AIOKafkaAdminClient", lambda **_: client)
    await subject.configure({"reflections": BROKERS_TIME})
    assert client.config == {"retention.ms": "2592000000", **BROKERS_TIME}


async def test_a_topic_that_a_broker_never_learns_of_gets_no_configuration(
    monkeypatch: pytest.MonkeyPatch, subject: admin.KafkaAdmin
) -> None:
    monkeypatch.setattr(admin, "KNOWN_S", 0.05)
    client = Lagging(inf)
    monkeypatch.setattr(admin, "AIOKafkaAdminClient", lambda **_: client)
    with pytest.raises(TransientError, match=r"t\.reflections"):
        await subject.configure({"reflections": BROKERS_TIME})
    assert client.config == {"retention.ms": "2592000000"}
