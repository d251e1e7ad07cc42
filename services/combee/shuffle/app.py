"""Faust delivers reflections and commands to the shuffler; it never acks and never commits.

Measured defects of faust-streaming 0.15.3 shape every option here; docs/results/tables/faust.csv has them.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import faust
import structlog
from faust.exceptions import FaustError
from faust.transport.drivers import aiokafka as driver

from combee.adapters.kafka.connection import Connection
from combee.adapters.kafka.membership import Membership
from combee.ports import Record, TransientError
from combee.shuffle.partition import COMMANDS, GROUP, REFLECTIONS
from combee.shuffle.shuffler import Shuffler

logger = structlog.get_logger()

FETCH_WAIT_MS = 50
"""How long the broker may hold a fetch: as in our own group consumers.

Faust fixes it at 1.5 s. aiokafka keeps one fetch a broker under way, without the partitions that it still holds
records of: the rest of a burst waited for the end of such a fetch (of 400 reflections 1.6 s instead of 0.15).
"""
TURN_S = 0.25
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
FETCH_BYTES = 256 * 1024
"""Fetched ahead of each partition, whatever the backlog; a larger record still comes, alone."""
METADATA_AGE_MS = 5_000
"""How soon the group's leader sees a topic that was not there when it assigned the partitions."""


class _Thread(driver.AIOKafkaConsumerThread):
    async def on_start(self) -> None:
        await super().on_start()
        cast("Transport", self.transport).membership.watch(self._consumer)

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS  # noqa: SLF001 - neither library has a setting for it
        return consumer


class _Consumer(driver.Consumer):
    def _new_consumer_thread(self) -> _Thread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)


class Transport(driver.Transport):
    """Faust's Kafka transport with ``FETCH_WAIT_MS``, which sees to it that one identity has one process."""

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
    app.transport = Transport(app.conf.broker_consumer, app)
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


def connect(app: Any, shuffler: Shuffler, prefix: str) -> Callable[..., Any]:
    """Feed the shuffler from two agents; return the signal handler, which the caller must keep alive."""
    for topic in (REFLECTIONS, COMMANDS):
        channel = app.topic(f"{prefix}.{topic}", value_serializer="raw", key_serializer="raw")
        # Concurrency > 1 would ack out of order (faust issue 606); partitions are isolated instead.
        app.agent(channel, name=f"{prefix}.{topic}", isolated_partitions=True)(_feeding(shuffler, topic))

    async def assigned(_app: Any, assigned: Any, **_: Any) -> None:
        mine = {
            t: {tp.partition for tp in assigned if tp.topic == f"{prefix}.{t}"}
            for t in (REFLECTIONS, COMMANDS)
        }
        if mine[REFLECTIONS] != mine[COMMANDS]:
            logger.error(
                "not_co_partitioned", service=GROUP, assigned={t: sorted(p) for t, p in mine.items()}
            )
        await shuffler.assign(mine[REFLECTIONS])

    app.on_partitions_assigned.connect(assigned)
    return assigned


def _feeding(shuffler: Shuffler, topic: str) -> Callable[[Any], Any]:
    async def feed(stream: Any) -> None:
        async for event in stream.noack().events():
            message = event.message
            await shuffler.deliver(
                Record(
                    topic=topic,
                    partition=message.partition,
                    offset=message.offset,
                    timestamp_ms=int((message.timestamp or 0) * 1000),
                    key=message.key,
                    value=message.value,
                    headers=tuple(dict(message.headers or ()).items()),
                )
            )

    return feed


async def session(
    app: Any, shuffler: Shuffler, prefix: str, stop: asyncio.Event, on_turn: Callable[[], None]
) -> None:
    """Run app and shuffler until ``stop``; trouble raises and the next session starts from the log.

    ``on_turn`` is called at each turn that has partitions.

    Raises
    ------
    FencedError, TransientError, FatalError
        For the runtime to decide on.
    """
    handler = connect(app, shuffler, prefix)
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            await app.start()
    except (driver.KafkaError, FaustError, AssertionError) as error:  # type: ignore[attr-defined]
        # Such as a topic that is so new that the broker does not know it yet, which Faust takes for impossible.
        await shuffler.close()
        await asyncio.wait_for(app.stop(), STOP_TIMEOUT_S)
        raise TransientError(f"Faust does not start: {error!r}") from error
    try:
        while not stop.is_set():
            app.transport.membership.check()
            await shuffler.turn()
            if shuffler.owned:
                on_turn()
            await _woken(shuffler)
    finally:
        del handler
        await shuffler.close()
        await asyncio.wait_for(app.stop(), STOP_TIMEOUT_S)


async def _woken(shuffler: Shuffler) -> None:
    try:
        # Not wait_for: before Python 3.12 it may swallow a cancellation.
        async with asyncio.timeout(TURN_S):
            await shuffler.wake.wait()
    except TimeoutError:
        return
    finally:
        shuffler.wake.clear()
