"""The real stream processor, whose consumer crashes: it would stay as it is, and deliver nothing any more."""

import asyncio
import math
from pathlib import Path
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaError

from combee.adapters.ports import TransientError
from combee.assembly import backends
from combee.process.settings.loading import load_settings
from combee.shuffle import app
from combee.shuffle.shuffler import Shuffler
from support.broker import Broker

DEADLINE_S = 60.0


class Idle:
    """A shuffler that has nothing to do."""

    owned = frozenset[int]()

    def __init__(self) -> None:
        self.wake = asyncio.Event()

    async def assign(self, _partitions: object) -> None: ...

    async def turn(self) -> None: ...

    async def close(self) -> None: ...

    def due_in(self) -> float:
        return math.inf


async def test_a_crash_of_the_stream_processor_ends_the_session(
    kafka: Broker, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(bootstrap_servers=kafka.bootstrap_servers, topic_prefix=topic_prefix)
    connection = backends.connection(settings, kafka.bootstrap_servers)
    await backends.create_topics(settings, connection)

    async def crashing(*_: Any) -> Any:
        raise KafkaError("no token")

    monkeypatch.setattr(app._Thread, "getmany", crashing)
    faust = app.build_app(connection, tmp_path)
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(TransientError, match=r"Faust has crashed: .*no token"):
            await app.session(faust, cast("Shuffler", Idle()), connection, asyncio.Event(), lambda: None)
