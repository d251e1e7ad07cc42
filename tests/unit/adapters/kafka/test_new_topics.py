"""Topics that a broker does not know yet, a moment after they were created."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.errors import UnknownTopicOrPartitionError
from structlog.testing import capture_logs

from combee import backends
from combee.adapters.kafka import KafkaAdmin, KafkaLog
from combee.adapters.kafka import log as kafka_log
from combee.adapters.kafka.connection import Connection
from combee.adapters.memory import MemoryLog
from combee.ports import ConfigurationError, FatalError, TransientError
from combee.settings.loading import load_settings
from combee.shuffle import app as faust_app
from combee.shuffle.shuffler import Shuffler
from support.clock import ManualClock

CONNECTION = Connection(bootstrap_servers="nowhere:1", prefix="p")


async def test_a_topic_is_looked_for_again_before_it_counts_as_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_log, "LOOK_AGAIN_S", 0.0)
    seen: list[Mapping[str, int]] = [{"other": 1}, {"other": 1}, {"new": 3}]

    async def counted(_self: KafkaLog, _topic: str) -> Mapping[str, int]:
        return seen.pop(0) if len(seen) > 1 else seen[0]

    monkeypatch.setattr(KafkaLog, "_counted", counted)
    log = KafkaLog(CONNECTION)
    assert await log.partitions("new") == 3
    with pytest.raises(FatalError, match=r"p\.none does not exist"):
        await log.partitions("none")


@pytest.mark.parametrize("error", [UnknownTopicOrPartitionError(), AssertionError("no partitions")])
async def test_a_stream_processor_that_does_not_start_is_started_again(error: Exception) -> None:
    stopped: list[bool] = []

    async def start() -> None:
        raise error

    async def stop() -> None:
        stopped.append(True)

    app = SimpleNamespace(
        topic=lambda *_, **__: None,
        agent=lambda *_, **__: lambda feed: feed,
        on_partitions_assigned=SimpleNamespace(connect=lambda _: None),
        start=start,
        stop=stop,
    )
    clock = ManualClock()
    shuffler = Shuffler(MemoryLog(clock), clock, load_settings().batch)
    with pytest.raises(TransientError, match="Faust does not start"):
        await faust_app.session(cast("Any", app), shuffler, CONNECTION, asyncio.Event(), lambda: None)
    assert stopped == [True]


async def test_who_may_not_see_whether_a_restore_is_under_way_is_warned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def has(_self: KafkaAdmin, _topic: str) -> bool:
        raise ConfigurationError("User:u has no right to Describe on topic p.restoring")

    monkeypatch.setattr(KafkaAdmin, "has", has)
    with capture_logs() as logs:
        assert not await backends._is_being_restored(KafkaAdmin(CONNECTION))
    (told,) = logs
    assert (told["event"], told["log_level"]) == ("restoring_unseen", "warning")
    assert "Describe on topic p.restoring" in told["reason"]
