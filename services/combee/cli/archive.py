"""``combee archive``: a playbook, or all of a prefix, to one file."""

import asyncio
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from combee.adapters.clock import SystemClock
from combee.adapters.kafka import KafkaAdmin
from combee.assembly.backends import connection
from combee.cli.shared.console import output, print_json, reading
from combee.cli.shared.log import open_log
from combee.cli.shared.options import AsJson, MaybePlaybook, Servers
from combee.cli.shared.settings import deployed_settings
from combee.log.archive.writing import Archived, write_archive
from combee.process.settings.loading import Settings
from combee_schemas.topics import TOPICS


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee archive --prefix --to combee.log.archive")(archive)


def archive(
    name: MaybePlaybook = None,
    *,
    to: Annotated[Path, typer.Option(help="the file to write; it is complete or absent")],
    prefix: Annotated[bool, typer.Option("--prefix", help="all playbooks of the topic prefix")] = False,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Write a playbook, or a whole topic prefix, to one file.

    'combee restore' reads it; services may keep running.
    """
    if (name is None) != prefix:
        raise typer.BadParameter("name a playbook, or say --prefix for all of them")
    settings = deployed_settings(bootstrap_servers=bootstrap_servers)
    archived = asyncio.run(_archive(settings, name or "", to))
    if as_json:
        print_json(
            {
                "file": str(to),
                "prefix": archived.header.prefix,
                "playbook": name,
                "records": dict(archived.records),
                "bytes": to.stat().st_size,
                "sha256": archived.sha256,
            }
        )
        return
    what = name or f"all of {archived.header.prefix}"
    said = f"{sum(archived.records.values())} records of {what} are in {to} ({to.stat().st_size:,} bytes)"
    output().print(f"{said}\nSHA-256 {archived.sha256}", markup=False, soft_wrap=True)


async def _archive(settings: Settings, name: str, to: Path) -> Archived:
    async with open_log(settings) as (log, servers):
        described = await KafkaAdmin(connection(settings, servers)).describe(topic.name for topic in TOPICS)
        with reading() as progress:
            return await write_archive(
                log,
                to,
                prefix=settings.kafka.topic_prefix,
                configs={topic: state.config for topic, state in described.items()},
                clock=SystemClock(),
                playbook=name,
                written_by=metadata.version("combee"),
                on_progress=progress,
            )
