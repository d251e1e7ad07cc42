"""``combee restore``: write an archive back into an empty prefix."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from combee.adapters.clock import SystemClock
from combee.adapters.kafka import KafkaAdmin, KafkaLog
from combee.adapters.kafka.connection import SESSION_S
from combee.adapters.ports import FatalError, TransientError
from combee.assembly.backends import connection
from combee.cli.shared.console import output, print_json, reading, remark
from combee.cli.shared.log import open_broker
from combee.cli.shared.options import AsJson, Servers, checked_prefix
from combee.core.log.layout import wanted
from combee.log.archive import restoring
from combee.log.archive.restoring import Contents, read_contents
from combee.process.settings.loading import Settings, load_settings


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee restore combee.log.archive --to copy --partitions 24")(restore)


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
    check: Annotated[bool, typer.Option("--check", help="only read the file and show its contents")] = False,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Read an archive back into an empty prefix.

    A repeat resumes an interrupted run. Start services afterwards.
    """
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
        again = "run the same command again: it resumes where it stopped"
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
                return await restoring.restore(
                    log,
                    KafkaAdmin(connected),
                    file,
                    wanted(kafka.partitions, kafka.scan_partitions),
                    prefix=kafka.topic_prefix,
                    replication=kafka.replication_factor,
                    clock=SystemClock(),
                    on_progress=progress,
                    session_s=SESSION_S,
                    tell=remark,
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
