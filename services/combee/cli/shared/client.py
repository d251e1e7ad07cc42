"""The SDK's client for verbs: on a gateway, which needs no Kafka here, else on the configured log."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import typer

from combee.adapters.kafka import KafkaLog
from combee.assembly import backends
from combee.cli.shared.log import open_log
from combee.cli.shared.settings import GATEWAY_URL, deployed_settings
from combee.process.settings.loading import environment
from combee.sdk import AsyncClient
from combee.sdk.address import is_gateway
from combee.sdk.transport import LogTransport

Gateway = Annotated[
    str | None,
    typer.Option(
        help=f"a gateway's address, with its key in COMBEE_GATEWAY_KEY; else {GATEWAY_URL}, else Kafka's"
    ),
]


def gateway_address(gateway: str | None, bootstrap_servers: str | None) -> str | None:
    """Return the gateway's address, None to use Kafka; options win over the environment."""
    if gateway is not None and not is_gateway(gateway):
        raise typer.BadParameter(f"{gateway!r} is not a gateway's address: http://… or https://…")
    if gateway is None and bootstrap_servers is None:
        return environment().get(GATEWAY_URL) or None
    return gateway


@asynccontextmanager
async def open_client(gateway: str | None, bootstrap_servers: str | None) -> AsyncIterator[AsyncClient]:
    """Yield a client of the gateway, else of the set brokers, the ``combee up`` that runs here or an embedded broker.

    Raises
    ------
    FatalError
        If no broker answers, or the gateway's client library is not installed.
    """
    if gateway is not None:
        async with AsyncClient(gateway) as client:
            yield client
        return
    settings = deployed_settings(bootstrap_servers=bootstrap_servers)
    async with open_log(settings) as (_, servers):
        connection = backends.connection(settings, servers)
        async with AsyncClient(transport=lambda: LogTransport(KafkaLog(connection))) as client:
            yield client
