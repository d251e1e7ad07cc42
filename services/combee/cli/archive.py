"""``combee archive`` and ``combee restore``: topics to one file, and back into an empty prefix."""

import asyncio
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from combee.adapters.kafka import KafkaAdmin, KafkaLog
from combee.archive.restoring import Contents, read_contents
from combee.archive.restoring import restore as restore_archive
from combee.archive.writing import Archived, write_archive
from combee.backends import connection
from combee.cli.shared.console import output, print_json, reading
from combee.cli.shared.log import open_broker, open_log
from combee.cli.shared.options import AsJson, MaybeName, Servers, checked_prefix
from combee.clock import SystemClock
from combee.core.layout import wanted
from combee.ports import FatalError, TransientError
from combee.settings.loading import Settings, load_settings
from combee_schemas.topics import TOPICS


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(epilog="Example: combee archive --prefix --to combee.archive")(archive)
    app.command(epilog="Example: combee restore combee.archive --to copy --partitions 24")(restore)


# ---- archive


def archive(
    name: MaybeName = None,
    *,
    to: Annotated[Path, typer.Option(help="the file; it is written whole or not at all")],
    prefix: Annotated[bool, typer.Option("--prefix", help="all playbooks of the topic prefix")] = False,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Write a playbook, or all of a prefix, to one file: a state that all services can go on from; they may run."""
    if (name is None) != prefix:
        raise typer.BadParameter("name a playbook, or say --prefix for all of them")
    settings = load_settings(bootstrap_servers=bootstrap_servers)
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


# ---- restore


def restore(
    file: Annotated[Path, typer.Argument(help="an archive")],
    *,
    to: Annotated[
        str | None,
        typer.Option(
            help="the empty topic prefix (default COMBEE_TOPIC_PREFIX)",
            callback=lambda value: value and checked_prefix(value),
        ),
    ] = None,
    partitions: Annotated[int | None, typer.Option(min=1, help="default COMBEE_PARTITIONS")] = None,
    scan_partitions: Annotated[int | None, typer.Option(min=1, help="default COMBEE_SCAN_PARTITIONS")] = None,
    check: Annotated[bool, typer.Option("--check", help="only read the file, and say what it holds")] = False,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Read an archive back into an empty prefix; run again after a kill, it goes on. Services start afterwards."""
    if check:
        with reading() as progress:
            contents = read_contents(file, on_progress=progress)
        _tell(contents, f"{file} holds", as_json=as_json)
        return
    settings = load_settings(
        bootstrap_servers=bootstrap_servers,
        topic_prefix=to,
        partitions=partitions,
        scan_partitions=scan_partitions,
    )
    try:
        contents = asyncio.run(_restore(settings, file))
    except (TransientError, TimeoutError) as error:
        again = "run the same command again: it goes on where it stopped"
        raise FatalError(f"{error or 'the broker took too long'}; {again}") from error
    kafka = settings.kafka
    _tell(contents, f"restored into {kafka.topic_prefix}:", as_json=as_json)
    if not as_json:
        names = {
            "COMBEE_TOPIC_PREFIX": kafka.topic_prefix,
            "COMBEE_PARTITIONS": kafka.partitions,
            "COMBEE_SCAN_PARTITIONS": kafka.scan_partitions,
        }
        set_to = " ".join(f"{name}={value}" for name, value in names.items())
        output().print(f"start its services with {set_to}", markup=False, soft_wrap=True)


async def _restore(settings: Settings, file: Path) -> Contents:
    kafka = settings.kafka
    async with open_broker(settings) as servers:
        connected = connection(settings, servers)
        log = KafkaLog(connected)
        try:
            with reading() as progress:
                return await restore_archive(
                    log,
                    KafkaAdmin(connected),
                    file,
                    wanted(kafka.partitions, kafka.scan_partitions),
                    prefix=kafka.topic_prefix,
                    replication=kafka.replication_factor,
                    clock=SystemClock(),
                    on_progress=progress,
                )
        finally:
            await log.close()


def _tell(contents: Contents, begin: str, *, as_json: bool) -> None:
    header = contents.header
    if as_json:
        print_json(
            {
                "prefix": header.prefix,
                "playbooks": dict(contents.playbooks),
                "batches_in_flight": contents.batches_in_flight,
                "records": dict(contents.records),
                "partitions": {topic.name: topic.partitions for topic in header.topics},
                "cut_at_ms": header.cut_at_ms,
                "written_by": header.written_by,
                "sha256": contents.sha256,
            }
        )
        return
    counts = (len(contents.playbooks), contents.batches_in_flight, sum(contents.records.values()))
    said = "{} {} playbooks, {} batches under way, {} records".format(begin, *counts)
    output().print(f"{said}\nSHA-256 {contents.sha256}", markup=False, soft_wrap=True)
