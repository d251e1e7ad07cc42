"""``combee playbook watch``: print each new version when it appears."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

import typer

from combee.adapters.ports import FatalError, Log, TransientError
from combee.cli.playbook.view import diff_lines, version_title
from combee.cli.shared.console import output, print_json, remark
from combee.cli.shared.log import open_log
from combee.cli.shared.options import Name, Servers
from combee.cli.shared.settings import deployed_settings
from combee.log.reports.audit import version_details
from combee.process.settings.loading import Settings
from combee_schemas import topics
from combee_schemas.playbook import Playbook

RECONNECT_S = 1.0


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee playbook watch support/refunds --json --count 1")(watch)


def watch(
    name: Name,
    *,
    count: Annotated[int | None, typer.Option(min=1, help="stop after this many versions")] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0, help="give up after this time (s), with exit 1")
    ] = None,
    bootstrap_servers: Servers = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document a line")] = False,
) -> None:
    """Print each new version and what it changed until Ctrl-C; pushed, not polled."""
    settings = deployed_settings(bootstrap_servers=bootstrap_servers)
    try:
        asyncio.run(_watch(settings, name, count, timeout, as_json=as_json))
    except KeyboardInterrupt:
        return


async def _watch(
    settings: Settings, name: str, count: int | None, timeout_s: float | None, *, as_json: bool
) -> None:
    left = count
    try:
        async with (
            open_log(settings) as (log, _),
            asyncio.timeout(timeout_s),
            aclosing(new_versions(log, name)) as versions,
        ):
            async for playbook in versions:
                _print(playbook, as_json=as_json)
                left = None if left is None else left - 1
                if left == 0:
                    return
    except TimeoutError as error:
        missed = "no new version" if left == count else f"no further version ({left} are missing)"
        raise FatalError(f"{missed} of {name} within {timeout_s:g} s") from error


async def new_versions(log: Log, name: str) -> AsyncGenerator[Playbook, None]:
    """Yield the versions of a playbook written from now on, across disconnects."""
    topic = topics.HISTORY.name
    positions = dict(await log.ends(topic))
    remark(f"watching {name}")
    while True:
        try:
            async with aclosing(log.follow(topic, positions)) as changes:
                async for records in changes:
                    for playbook in topics.HISTORY.under(name, records or ()):
                        yield playbook
                    positions |= {record.partition: record.offset + 1 for record in records or ()}
        except TransientError as error:
            remark(f"disconnected, trying again: {error}")
            await asyncio.sleep(RECONNECT_S)


def _print(playbook: Playbook, *, as_json: bool) -> None:
    if as_json:
        changes = [change.model_dump(mode="json") for change in playbook.changes]
        print_json({"name": playbook.name, **dict(version_details(playbook)), "diff": changes})
        return
    console = output()
    console.print(version_title(playbook), markup=False, soft_wrap=True)
    for line in diff_lines(playbook):
        console.print(line, markup=False, soft_wrap=True)
