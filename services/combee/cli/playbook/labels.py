"""``combee playbook promote`` and ``labels``: movable names for versions."""

import asyncio
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from combee.adapters.clock import moment
from combee.adapters.ports import Log
from combee.cli.playbook.lookup import version_number
from combee.cli.shared.console import output, print_json
from combee.cli.shared.log import open_log
from combee.cli.shared.options import AsJson, CommandId, MaybeName, Name, Ref, Servers, Timeout, label_names
from combee.cli.shared.sending import Change, carry_out
from combee.cli.shared.settings import deployed_settings
from combee.core.commands import label_fault
from combee.core.text.forms import printable
from combee.log.commands.playbook import Commands, PreparedCommand
from combee.log.history import all_labels, newest_playbooks
from combee.process.settings.loading import Settings
from combee_schemas.playbook import LATEST


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(epilog="Example: combee playbook promote support/refunds production 12")(promote)
    app.command(epilog="Example: combee playbook labels support/refunds")(labels)


def checked_label(value: str) -> str:
    """Return a label, or refuse it as wrong usage."""
    if fault := label_fault(value):
        raise typer.BadParameter(fault)
    return value


def promote(
    name: Name,
    label: Annotated[
        str, typer.Argument(help="such as production", callback=checked_label, autocompletion=label_names)
    ],
    version: Ref = LATEST,
    *,
    command_id: CommandId = None,
    timeout: Timeout = 30.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Point a label at a version (a number, another label, or latest); agents that read the label follow."""
    change = asyncio.run(move_label(name, label, version, command_id, timeout, bootstrap_servers))
    previous = change.prepared.label.version if change.prepared.label else None
    if as_json:
        row = {"name": name, "label": label, "version": change.version, "previous": previous}
        print_json({**row, "changed": change.changed})
        return
    before = f" (before: {previous})" if previous else ""
    unchanged = "" if change.changed else "unchanged: "
    output().print(f"{unchanged}{name} {label} → version {change.version}{before}", markup=False)


async def move_label(
    name: str, label: str, ref: str, command_id: str | None, timeout_s: float, servers: str | None
) -> Change:
    """Move a label to the version that ``ref`` names."""

    async def decide(log: Log, commands: Commands) -> PreparedCommand:
        return await commands.promote(
            name, label, await version_number(log, name, ref), command_id=command_id
        )

    return await carry_out(name, decide, timeout_s=timeout_s, servers=servers)


def labels(name: MaybeName = None, *, bootstrap_servers: Servers = None, as_json: AsJson = False) -> None:
    """List labels: the version of each, and the newest version."""
    rows = asyncio.run(_labels(deployed_settings(bootstrap_servers=bootstrap_servers), name))
    if as_json:
        print_json(rows)
        return
    table = Table("playbook", "label", "version", "newest", "moved (UTC)", "by", box=None)
    for row in rows:
        counts = (str(row["version"]), str(row["newest"]))
        table.add_row(
            row["name"], row["label"], *counts, moment(row["moved_at_ms"]), Text(printable(row["issued_by"]))
        )
    output().print(table if rows else "no labels yet; 'combee playbook promote' sets one")


async def _labels(settings: Settings, name: str | None) -> list[dict[str, Any]]:
    async with open_log(settings) as (log, _):
        known = await all_labels(log)
        newest = await newest_playbooks(log)
    return [
        {
            "name": pointer.playbook,
            "label": pointer.label,
            "version": pointer.version,
            "newest": newest[pointer.playbook].version,
            "moved_at_ms": pointer.moved_at_ms,
            "issued_by": pointer.issued_by,
        }
        for pointer in known
        if pointer.playbook in newest and name in {None, pointer.playbook}
    ]
