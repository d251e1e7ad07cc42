"""``combee playbook cost``: model calls, tokens and money spent on playbooks, in total and today."""

import asyncio
from typing import Annotated, Literal

import typer
from rich.table import Table

from combee.adapters.ports import FatalError, Log, TopicPartition
from combee.cli.shared.console import output, print_json, reading
from combee.cli.shared.log import open_log
from combee.cli.shared.options import AsJson, MaybeName, Servers
from combee.cli.shared.settings import deployed_settings
from combee.core.names.tenants import tenant_of
from combee.core.playbook.side_by_side import in_order
from combee.log.history import partition_of
from combee.log.reports.cost import CostReport, cost_report
from combee.process.settings.loading import Settings
from combee_schemas import topics
from combee_schemas.playbook import Playbook
from combee_schemas.topics import key_of

TOLD_EVERY = 100


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee playbook cost support/refunds --json")(cost)


def cost(
    name: MaybeName = None,
    *,
    by: Annotated[
        Literal["playbook", "tenant"], typer.Option(help="one row per playbook or per tenant")
    ] = "playbook",
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Sum up model calls, tokens and money by playbook or tenant; each call counts at the prices of its time."""
    if by == "tenant" and name is not None:
        raise typer.BadParameter("--by tenant covers all playbooks: give no name")
    histories = asyncio.run(_cost(deployed_settings(bootstrap_servers=bootstrap_servers), name))
    grouped: dict[str, list[list[Playbook]]] = {}
    for line in in_order(histories):
        grouped.setdefault(tenant_of(line) if by == "tenant" else line, []).append(histories[line])
    rows = [cost_report(*group) for group in grouped.items()]
    if name is not None and not rows:
        raise FatalError(
            f"{name} has no version yet; 'combee playbook list' shows the playbooks that have one"
        )
    if as_json:
        print_json(rows)
    else:
        _print(rows, by)


async def _cost(settings: Settings, name: str | None) -> dict[str, list[Playbook]]:
    async with open_log(settings) as (log, _):
        return await _histories(log, name)


async def _histories(log: Log, name: str | None) -> dict[str, list[Playbook]]:
    """Return all versions by playbook, without their entries to bound memory."""
    topic = topics.HISTORY.name
    ends, first = await log.ends(topic), await log.beginnings(topic)
    numbers = [(await partition_of(log, topics.HISTORY, name)).partition] if name else sorted(ends)
    total, read = sum(ends[number] - first[number] for number in numbers), 0
    histories: dict[str, list[Playbook]] = {}
    with reading() as show:
        for number in numbers:
            async for record in log.read(TopicPartition(topic=topic, partition=number), 0, ends[number]):
                read += 1
                if read % TOLD_EVERY == 0:
                    show(topic, read, total)
                for version in topics.HISTORY.under(key_of(record), [record]):
                    if name in {None, version.name}:
                        bare = version.model_copy(update={"entries": (), "changes": ()})
                        histories.setdefault(version.name, []).append(bare)
    return histories


def _print(rows: list[CostReport], by: str = "playbook") -> None:
    counts = ("batches", "reflections", "model_calls")
    table = Table(
        by, *counts, "tokens in", "of them cached", "tokens out", "per reflection", "money", box=None
    )
    for row in rows:
        tokens = row.tokens_per_reflection
        table.add_row(
            row.name,
            *(f"{count:,}" for count in (row.batches, row.reflections, row.model_calls)),
            *(f"{count:,}" for count in row.tokens.values()),
            "" if tokens is None else f"{tokens:,.0f}",
            f"{row.cost:,.4f}",
        )
    output().print(table if rows else "nothing was spent yet")
    if rows and not any(row.cost for row in rows):
        output().print("money is counted where the model has a price: [prices] in combee.toml", markup=False)
    for row in rows if len(rows) == 1 else ():
        for day in row.days:
            output().print(f"  {day.day}  {day.tokens:>14,} tokens  {day.cost:,.4f}")
