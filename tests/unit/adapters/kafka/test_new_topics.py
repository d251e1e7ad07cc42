"""Topics that a broker does not know yet, a moment after they were created."""

from collections.abc import Mapping

import pytest
from structlog.testing import capture_logs

from combee.adapters.kafka import KafkaAdmin, KafkaLog
from combee.adapters.kafka import log as kafka_log
from combee.adapters.kafka.connection import Connection
from combee.adapters.ports import ConfigurationError, FatalError
from combee.assembly import backends

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
