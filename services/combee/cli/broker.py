"""``combee broker``: the embedded broker of this machine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import typer
from rich.console import Console

from combee.adapters.kafka import is_ready
from combee.process.settings.loading import environment

broker = typer.Typer(help="The embedded broker: real Apache Kafka from its jars, on loopback.")


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.add_typer(broker, name="broker")


@broker.callback()
def group() -> None:
    """The embedded broker: real Apache Kafka from its jars, on loopback."""


@broker.command(epilog="Example: combee broker fetch")
def fetch() -> None:
    """Fetch and verify the broker's jars; nothing happens if they are complete."""
    asyncio.run(_fetch())


async def _fetch() -> None:
    from combee.adapters.embedded_kafka import EmbeddedKafka  # noqa: PLC0415 - --help stays quick

    with Console(stderr=True).status("checking the broker's jars") as status:

        def progress(present: int, total: int) -> None:
            status.update(f"fetching the broker's jars: {present} of {total}")

        kafka = EmbeddedKafka(Path("unused"), ready=is_ready, env=environment(), progress=progress)
        await kafka.prepare()


@asynccontextmanager
async def throw_away_broker(folder: Path, *, benchmark: bool = False) -> AsyncIterator[str]:
    """Yield the address of an embedded broker whose data are deleted at the end."""
    from combee.adapters.embedded_kafka import EmbeddedKafka  # noqa: PLC0415 - as above

    async with EmbeddedKafka(folder, ready=is_ready, env=environment(), benchmark=benchmark) as kafka:
        yield kafka.bootstrap_servers
