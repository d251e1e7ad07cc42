"""The log a command works on: the configured cluster, else this user's embedded broker."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from combee import backends
from combee.adapters.kafka import KafkaAdmin, KafkaLog, Presence, is_ready
from combee.cli.console import diagnostics, remark
from combee.clock import SystemClock
from combee.local.preflight import require_data_dir
from combee.ports import ConfigurationError, FatalError, TransientError
from combee.settings.loading import Settings, environment
from combee.telemetry.logs import configure_logs
from combee.worker.retry import OutageMonitor

CONNECT_S = 20.0
"""So long a verb waits for a broker that does not answer."""
ASK_AGAIN_S = 0.5


@asynccontextmanager
async def open_log(
    settings: Settings, *, create: bool = False, told: Callable[[str], None] = remark
) -> AsyncIterator[tuple[KafkaLog, str]]:
    """Yield the log and the brokers' address; ``told`` hears when an embedded broker had to be started again.

    The embedded broker's topics are ours and are created as needed; on a configured cluster only
    ``combee topics create`` does that, unless ``create``.

    Raises
    ------
    FatalError
        If no broker answers in time, or topics are missing or wrong.
    """
    async with open_broker(settings, told) as servers:
        connected = backends.connection(settings, servers)
        ours = create or settings.kafka.bootstrap_servers is None

        async def prepare() -> None:
            if ours and await backends.topic_problems(settings, connected):
                await backends.create_topics(settings, connected)
            await backends.check_topics(settings, connected)

        await _answered(prepare, servers)
        log, presence = KafkaLog(connected), Presence(connected)
        monitor = OutageMonitor(presence.ask, SystemClock(), service="combee", where=servers)
        watching = asyncio.create_task(monitor.run())  # says so while what is under way waits for the broker
        try:
            yield log, servers
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await presence.close()
            await log.close()


@asynccontextmanager
async def open_broker(settings: Settings, told: Callable[[str], None] = remark) -> AsyncIterator[str]:
    """Yield the address of a broker that answers; its topics are not looked at.

    Raises
    ------
    FatalError
        If none answers in time or can be started.
    ConfigurationError
        If the embedded one is not installed, or its directory cannot be written.
    """
    # A broker that is away is told once, by us; libraries repeat it for every attempt.
    configure_logs("warning", json=False, libraries=logging.CRITICAL)
    servers = settings.kafka.bootstrap_servers
    if servers is not None:
        presence = Presence(backends.connection(settings, servers))
        try:
            await _answered(presence.ask, servers)
        finally:
            await presence.close()
        yield servers
        return
    # Only here: where Kafka is given, as in a container, what the embedded one needs may be missing.
    try:
        from combee.adapters.embedded_kafka import open_user_broker  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "no Kafka is configured and the embedded one is not installed: set COMBEE_BOOTSTRAP_SERVERS,"
            " or pip install 'combee[embedded]'"
        ) from error

    require_data_dir(settings)
    status = diagnostics().status("starting Apache Kafka on loopback")

    def progress(present: int, total: int) -> None:
        status.update(f"fetching the broker's jars: {present} of {total}")

    home = settings.worker.data_dir
    status.start()
    try:
        async with open_user_broker(
            home, ready=is_ready, env=environment(), progress=progress, told=told
        ) as bootstrap:
            status.stop()
            yield bootstrap
    finally:
        status.stop()


async def _answered(ask: Callable[[], Awaitable[None]], servers: str) -> None:
    """Ask until the brokers answer, and say so if that takes a while.

    Raises
    ------
    FatalError
        If they do not within CONNECT_S; at once a ConfigurationError, which waiting does not heal.
    """
    why = "no answer"
    said = CONNECT_S <= 0
    with suppress(TimeoutError):
        async with asyncio.timeout(CONNECT_S):
            while True:
                try:
                    return await ask()
                except TransientError as error:
                    why = str(error)
                if not said:
                    remark(f"waiting up to {CONNECT_S:.0f} s for Kafka at {servers} ({why})")
                    said = True
                await asyncio.sleep(ASK_AGAIN_S)
    raise FatalError(
        f"no Kafka answers at {servers} ({why}): start it, or correct --bootstrap-servers /"
        " COMBEE_BOOTSTRAP_SERVERS; without either, Combee starts an embedded broker"
    )


async def brokers(settings: Settings, servers: str) -> str:
    """Return the addresses of the brokers that answer."""
    return await KafkaAdmin(backends.connection(settings, servers)).broker()
