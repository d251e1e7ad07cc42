"""Faust delivers reflections and commands to the shuffler; it never acks and never commits.

Measured defects of faust-streaming 0.15.3 shape every option here; docs/results/tables/faust.csv has them.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import faust
import structlog
from faust.exceptions import FaustError
from faust.transport.drivers import aiokafka as driver
from faust.types import ConsumerMessage

from combee.adapters.kafka.connection import Connection
from combee.adapters.kafka.fetch_waits import wait_longer_when_idle
from combee.adapters.kafka.log import READ_COMMITTED
from combee.adapters.kafka.membership import Membership
from combee.adapters.ports import TransientError
from combee.process.worker.session import first_of
from combee.shuffle.partition import COMMANDS, GROUP, REFLECTIONS
from combee.shuffle.shuffler import Shuffler

logger = structlog.get_logger()

MAX_TURN_GAP_S = 2.0
"""Maximum seconds between two turns; a window that times out makes the next turn come sooner."""
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
FETCH_BYTES = 256 * 1024
"""Maximum bytes fetched ahead per partition; a larger record is still fetched, alone."""
METADATA_AGE_MS = 5_000
"""Milliseconds until the group's leader notices a topic created after the partitions were assigned."""


class _Thread(driver.AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: Any) -> Any:
        # Faust would read committed records only with transactions of its own, which lose and repeat records.
        consumer = super()._create_worker_consumer(transport)
        consumer._isolation_level = READ_COMMITTED  # noqa: SLF001 - it is read when the consumer starts
        return consumer

    async def on_start(self) -> None:
        await super().on_start()
        cast("RangeTransport", self.transport).membership.watch(self._consumer)
        # With Faust's own wait of 1.5 s per fetch, the last of 400 reflections came after 1.6 s instead of 0.15.
        wait_longer_when_idle(self._consumer)


class FetchedRange(ConsumerMessage):
    """All records of a partition in one fetch, as one message with the offset of the last."""

    def __init__(self, records: Sequence[Any], tp: Any, generation_id: int) -> None:
        last = records[-1]
        super().__init__(
            topic=last.topic,
            partition=last.partition,
            offset=last.offset,
            timestamp=last.timestamp / 1000,
            timestamp_type=last.timestamp_type,
            headers=None,
            key=None,
            value=None,
            checksum=None,
            tp=tp,
            generation_id=generation_id,
        )
        self.records = records


class _Consumer(driver.Consumer):
    """Passes records on in ranges: single records would cost Faust more processor time than all of our work."""

    def _new_consumer_thread(self) -> _Thread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)

    async def _getmany(self, active_partitions: Any, timeout: float) -> Any:  # noqa: ASYNC109 - Faust's signature
        fetched = await super()._getmany(active_partitions, timeout)
        return {partition: [records] for partition, records in fetched.items() if records}

    async def _add_gap(self, *_: object) -> None:
        """Ignore gaps between messages: Faust needs them for its own commits, which are off."""

    def _to_message(self, tp: Any, record: Any) -> FetchedRange:
        return FetchedRange(record, tp, self.app.consumer_generation_id)


class RangeTransport(driver.Transport):
    """Faust's Kafka transport with ranges and short fetches; ``membership`` detects a second process in its slot."""

    Consumer = _Consumer
    membership: Membership


def build_app(connection: Connection, data_dir: Path) -> Any:
    """Return the Faust app; nothing connects before it is started."""
    brokers = ";".join(f"kafka://{server}" for server in connection.bootstrap_servers.split(","))
    membership = connection.membership(GROUP)
    app = faust.App(
        connection.full(GROUP),
        broker=brokers,
        broker_credentials=_credentials(connection.security),
        datadir=str(data_dir),
        store="memory://",
        web_enabled=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        consumer_auto_offset_reset="earliest",
        consumer_group_instance_id=membership.instance_id,
        broker_session_timeout=connection.session_timeout_ms / 1000,
        broker_heartbeat_interval=1.0,
        broker_rebalance_timeout=90.0,
        broker_max_poll_records=200,
        consumer_max_fetch_size=FETCH_BYTES,
        consumer_metadata_max_age_ms=METADATA_AGE_MS,
        stream_buffer_maxsize=4096,
        # Open events would hold up the shutdown for more than 20 s otherwise.
        stream_wait_empty=False,
        loghandlers=[],
    )
    app.transport = RangeTransport(app.conf.broker_consumer, app)
    app.transport.membership = membership
    return app


def _credentials(security: Mapping[str, Any]) -> Any:
    context = security.get("ssl_context")
    if tokens := security.get("sasl_oauth_token_provider"):
        return faust.OAuthCredentials(oauth_cb=tokens, ssl_context=context)
    if "sasl_mechanism" in security:
        return faust.SASLCredentials(
            username=security["sasl_plain_username"],
            password=security["sasl_plain_password"],
            mechanism=security["sasl_mechanism"],
            ssl_context=context,
        )
    return faust.SSLCredentials(context) if context else None


def connect(app: Any, shuffler: Shuffler, connection: Connection) -> Callable[..., Any]:
    """Feed the shuffler from two agents; return the signal handler, which the caller must keep alive."""
    for topic in (REFLECTIONS, COMMANDS):
        name = connection.full(topic)
        channel = app.topic(name, value_serializer="raw", key_serializer="raw")
        # Concurrency > 1 would ack out of order (faust issue 606); partitions are isolated instead.
        app.agent(channel, name=name, isolated_partitions=True)(_feeding(shuffler, connection))

    async def assigned(_app: Any, assigned: Any, **_: Any) -> None:
        mine = {
            t: {tp.partition for tp in assigned if tp.topic == connection.full(t)}
            for t in (REFLECTIONS, COMMANDS)
        }
        if mine[REFLECTIONS] != mine[COMMANDS]:
            logger.error(
                "not_co_partitioned", service=GROUP, assigned={t: sorted(p) for t, p in mine.items()}
            )
        await shuffler.assign(mine[REFLECTIONS])

    app.on_partitions_assigned.connect(assigned)
    return assigned


def _feeding(shuffler: Shuffler, connection: Connection) -> Callable[[Any], Any]:
    async def feed(stream: Any) -> None:
        async for event in stream.noack().events():
            shuffler.deliver([connection.record(fetched) for fetched in event.message.records])

    return feed


async def session(
    app: Any,
    shuffler: Shuffler,
    connection: Connection,
    stop: asyncio.Event,
    on_turn: Callable[[], None],
) -> None:
    """Run app and shuffler until ``stop``; trouble raises and the next session starts from the log.

    ``on_turn`` is called at each turn that has partitions.

    Raises
    ------
    FencedError, TransientError, FatalError
        The caller decides what follows.
    """
    handler = connect(app, shuffler, connection)
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            await app.start()
    except (driver.KafkaError, FaustError, AssertionError) as error:  # type: ignore[attr-defined]
        # For example, the broker does not know a new topic yet: Faust then fails an assertion.
        await shuffler.close()
        await asyncio.wait_for(app.stop(), STOP_TIMEOUT_S)
        raise TransientError(f"Faust does not start: {error!r}") from error
    try:
        while not stop.is_set():
            app.transport.membership.check()
            if app.crashed:  # Faust would keep running without delivering anything
                logger.error("stream_processor_crashed", service=GROUP, error=repr(app.crash_reason))
                raise TransientError(f"Faust has crashed: {app.crash_reason!r}") from app.crash_reason
            await shuffler.turn()
            if shuffler.owned:
                on_turn()
            await first_of(stop, shuffler.wake, within_s=min(MAX_TURN_GAP_S, shuffler.due_in()))
            shuffler.wake.clear()
    finally:
        del handler
        await shuffler.close()
        await asyncio.wait_for(app.stop(), STOP_TIMEOUT_S)
