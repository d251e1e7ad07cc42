"""``combee mcp``: playbooks for coding assistants, on behalf of the SDK's address or of callers' keys."""

import asyncio
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from combee.adapters.kafka import KafkaLog
from combee.adapters.ports import ConfigurationError, Log
from combee.assembly import backends
from combee.cli.playbook.lookup import chosen_version
from combee.cli.shared.client import Gateway, gateway_address
from combee.cli.shared.console import remark
from combee.cli.shared.log import open_log
from combee.cli.shared.options import Servers
from combee.cli.shared.settings import deployed_settings
from combee.cli.why import lines
from combee.core.names.sources import Signer
from combee.log.history import newest_playbook, newest_playbooks
from combee.log.inspection.lineage import lineage_read
from combee.process.telemetry.logs import configure_logs
from combee.sdk import AsyncClient, PlaybookView
from combee.sdk.address import resolved_address
from combee.sdk.transport import LogTransport
from combee_schemas.playbook import Playbook
from combee_schemas.topics import Published

if TYPE_CHECKING:
    from combee.adapters.http.queries import Page

HTTP_NEEDS_A_GATEWAY = (
    "on HTTP each caller brings a key of the gateway, and the gateway decides: give its address with --gateway or"
    " COMBEE_GATEWAY_URL; with Kafka's address only standard input and output are served"
)
PAGE = 100


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee mcp --gateway http://127.0.0.1:8750")(mcp)


def mcp(
    *,
    http: Annotated[
        bool, typer.Option("--http", help="serve HTTP (streamable) instead of standard input and output")
    ] = False,
    host: Annotated[str, typer.Option(help="with --http: the address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="with --http; 0: a free one")] = 8760,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="with --http: a further accepted host name; may be repeated"),
    ] = None,
    gateway: Gateway = None,
    bootstrap_servers: Servers = None,
) -> None:
    """Serve playbooks to coding assistants over MCP.

    It speaks the Model Context Protocol on standard input and output, or on HTTP.
    """
    address = gateway_address(gateway, bootstrap_servers)
    # Standard output carries only the protocol.
    configure_logs("warning", json=False)
    if not http:
        asyncio.run(_stdio(address, bootstrap_servers))
        return
    if address is None:
        raise ConfigurationError(HTTP_NEEDS_A_GATEWAY)
    asyncio.run(_http(address, host, port, allow_host or ()))


async def _stdio(gateway: str | None, servers: str | None) -> None:
    from combee.integrations.mcp.deployment import GatewayDeployment  # noqa: PLC0415 - an extra
    from combee.integrations.mcp.serving import serve_stdio  # noqa: PLC0415 - an extra

    # A thread waits for standard input and wakes only at its end, so Ctrl-C ends the process at once.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if gateway is not None:
        key = resolved_address(gateway, prefix=None, api_key=None, security=None).api_key
        deployment = GatewayDeployment(gateway, key)
        try:
            await serve_stdio(deployment)
        finally:
            await deployment.close()
        return
    settings = deployed_settings(bootstrap_servers=servers)
    async with open_log(settings) as (log, address):
        connection = backends.connection(settings, address)
        async with AsyncClient(transport=lambda: LogTransport(KafkaLog(connection))) as client:
            await serve_stdio(LogDeployment(log, client, settings.sources.signer()))


async def _http(gateway: str, host: str, port: int, names: Sequence[str]) -> None:
    from combee.integrations.mcp.serving import serve_http  # noqa: PLC0415 - an extra

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve_http(
        gateway, host=host, port=port, names=names, stop=stop, on_ready=lambda at: remark(f"serving {at}")
    )


class LogDeployment:
    """A ``Deployment`` on Kafka, with this process's rights and the name that it proves."""

    def __init__(self, log: Log, client: AsyncClient, signer: Signer | None = None) -> None:
        self._log, self._client = log, client
        self._transport = LogTransport(log, signer)

    async def playbooks(self, after: str | None) -> "Page":
        from combee.adapters.http.queries import Listed, Page  # noqa: PLC0415 - an extra

        newest = await newest_playbooks(self._log)
        later = [name for name in newest if name > (after or "")]
        listed = tuple(
            Listed(name=name, version=newest[name].version, entries=len(newest[name].entries))
            for name in later[:PAGE]
        )
        return Page(playbooks=listed, next=listed[-1].name if len(later) > PAGE else None)

    async def playbook(self, name: str, *, label: str | None = None, version: int | None = None) -> Playbook:
        return await chosen_version(self._log, name, version, label)

    async def newest_version(self, name: str) -> int:
        newest = await newest_playbook(self._log, name)
        return newest.version if newest else 0

    async def send(self, message: Published) -> None:
        await self._transport.send([message])

    async def why(self, playbook: str, entry_id: str) -> Sequence[str]:
        origins = await lineage_read(self._log, await self.playbook(playbook), entry_id)
        return [line.plain for line in lines(origins)]

    def on_update(self, name: str, callback: Callable[[PlaybookView], object]) -> Callable[[], None]:
        return self._client.on_update(name, callback)

    async def close(self) -> None:
        """Do nothing: the caller that opened log and client closes them."""
