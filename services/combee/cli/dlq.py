"""``combee dlq``: records that could not be used, and why; secrets in them are not shown."""

import asyncio
import json
import re
from collections import deque
from collections.abc import AsyncIterator
from typing import Annotated, Any

import typer
from rich.table import Table

from combee.cli.console import clean, moment, output, print_json, reading
from combee.cli.dead_letter_view import in_full, summary
from combee.cli.options import AsJson, Servers
from combee.ports import FatalError, Log, Record, TopicPartition
from combee.runtime.settings import Settings, load_settings
from combee_schemas import topics

TOPIC = topics.DEAD_LETTERS.name
dlq = typer.Typer(help="Dead letters: list, show.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.add_typer(dlq, name="dlq")


@dlq.callback()
def group() -> None:
    """Dead letters: list, show."""


@dlq.command("list", epilog="Example: combee dlq list --limit 20 --json")
def list_(
    *,
    limit: Annotated[int, typer.Option(min=1, help="at most so many, the newest")] = 50,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters, newest first."""
    total, rows = asyncio.run(_list(load_settings(bootstrap_servers=bootstrap_servers), limit))
    if as_json:
        print_json({"total": total, "dead_letters": rows})
        return
    table = Table("id", "time (UTC)", "service", "origin", "record", "playbook", "reason", box=None)
    for row in rows:
        origin = row["origin"]
        place = f"{origin['topic']}[{origin['partition']}]@{origin['offset']}"
        cells = (row["id"], moment(row["at_ms"]), row["service"], place)
        table.add_row(*cells, *(clean(row[name]) for name in ("record_id", "playbook", "reason")))
    console = output()
    console.print(table) if rows else console.print("no dead letters")
    if total > len(rows):
        console.print(f"{len(rows)} of {total}; more with --limit")


async def _list(settings: Settings, limit: int) -> tuple[int, list[dict[str, Any]]]:
    from combee.cli.log import open_log  # noqa: PLC0415 - --help stays quick

    total = 0
    kept: deque[dict[str, Any]] = deque(maxlen=limit)
    async with open_log(settings) as (log, _):
        with reading() as progress:
            async for record in _letters(log):
                total += 1
                kept.append(summary(record))
                progress(TOPIC, total, total)
    return total, list(reversed(kept))


async def _letters(log: Log) -> AsyncIterator[Record]:
    for partition in range(await log.partitions(TOPIC)):
        async for record in log.read(TopicPartition(topic=TOPIC, partition=partition), 0):
            yield record


@dlq.command(epilog="Example: combee dlq show 0-17")
def show(
    identity: Annotated[str, typer.Argument(metavar="ID", help="as 'dlq list' gives it, such as 0-17")],
    *,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter: why, from where, and what was in it."""
    found = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,18})", identity)
    if found is None:
        raise typer.BadParameter(f"{identity!r} is no dead letter's id; 'combee dlq list' shows them")
    place = TopicPartition(topic=TOPIC, partition=int(found[1])), int(found[2])
    letter = asyncio.run(_show(load_settings(bootstrap_servers=bootstrap_servers), *place))
    if as_json:
        print_json(letter)
        return
    console = output()
    for name, value in letter.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        console.print(f"{name}: {clean(text)}", markup=False, soft_wrap=True)


async def _show(settings: Settings, source: TopicPartition, offset: int) -> dict[str, Any]:
    from combee.cli.log import open_log  # noqa: PLC0415 - --help stays quick

    async with open_log(settings) as (log, _):
        known = source.partition < await log.partitions(source.topic)
        found = await log.read_at(source, [offset]) if known else {}
    if offset not in found:
        raise FatalError(
            f"there is no dead letter {source.partition}-{offset}; 'combee dlq list' shows what there is"
        )
    return in_full(found[offset])
