"""The log a command works on: the configured cluster, else this user's embedded broker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from combee import compose
from combee.adapters.embedded_kafka import open_user_broker
from combee.adapters.kafka import KafkaLog, is_ready
from combee.runtime.settings import Settings, environment


@asynccontextmanager
async def open_log(settings: Settings, *, create: bool = False) -> AsyncIterator[tuple[KafkaLog, str]]:
    """Yield the log and the brokers' address.

    The embedded broker's topics are ours and are created as needed; on a configured cluster only
    ``combee topics create`` does that, unless ``create``.

    Raises
    ------
    FatalError
        If topics are missing or wrong.
    """
    servers = settings.kafka.bootstrap_servers
    if servers is not None:
        async with _opened(settings, servers, create=create) as log:
            yield log, servers
        return
    home = settings.worker.data_dir
    async with (
        open_user_broker(home, ready=is_ready, env=environment()) as bootstrap,
        _opened(settings, bootstrap, create=True) as log,
    ):
        yield log, bootstrap


@asynccontextmanager
async def _opened(settings: Settings, servers: str, *, create: bool) -> AsyncIterator[KafkaLog]:
    if create:
        await compose.create_topics(settings, compose.connection(settings, servers))
    async with compose.opened(settings, servers) as log:
        yield log
