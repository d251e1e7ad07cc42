"""``combee playbook promote`` and ``labels``: movable names for versions."""

import asyncio
import re
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from combee.cli.console import clean, output, print_json
from combee.cli.options import AsJson, CommandId, MaybeName, Name, Patience, Ref, Servers, label_names
from combee.cli.playbook.lookup import all_labels, newest_playbooks, resolved, wanted
from combee.clock import SystemClock, moment
from combee.commands.sending import ensure_publisher, run_promotion
from combee.core.identity import content_id
from combee.settings.loading import Settings, load_settings
from combee_schemas.command import Command
from combee_schemas.playbook import LABEL_PATTERN, LATEST

LABEL = re.compile(LABEL_PATTERN)


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(epilog="Example: combee playbook promote support/refunds production 12")(promote)
    app.command(epilog="Example: combee playbook labels support/refunds")(labels)


def checked_label(value: str) -> str:
    """Return a label, or refuse it as wrong usage."""
    if not LABEL.fullmatch(value) or value == LATEST:
        raise typer.BadParameter(
            f"{value!r} is no label: a letter, then letters, digits and . _ - (at most 80); latest moves by itself"
        )
    return value


def promote(
    name: Name,
    label: Annotated[
        str, typer.Argument(help="such as production", callback=checked_label, autocompletion=label_names)
    ],
    version: Ref = LATEST,
    *,
    command_id: CommandId = None,
    timeout: Patience = 30.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Let a label point at a version: its number, another label, or the newest; agents that read it follow."""
    settings = load_settings(bootstrap_servers=bootstrap_servers)
    row = asyncio.run(promoted(settings, name, label, version, command_id, timeout))
    if as_json:
        print_json(row)
        return
    before = f" (before: {row['previous']})" if row["previous"] else ""
    remark = "" if row["changed"] else "unchanged: "
    output().print(f"{remark}{name} {label} → version {row['version']}{before}", markup=False)


async def promoted(
    settings: Settings, name: str, label: str, ref: str, command_id: str | None, timeout_s: float
) -> dict[str, Any]:
    """Move a label to the version that ``ref`` names and return the row of ``promote --json``."""
    from combee.cli.log import open_log  # noqa: PLC0415 - --help stays quick

    async with open_log(settings) as (log, servers):
        target = await resolved(log, name, ref)
        known = {one.label: one for one in await all_labels(log) if one.playbook == name}.get(label)
        row: dict[str, Any] = {"name": name, "label": label, "version": target.version}
        row |= {"previous": known.version if known else None}
        if known and (known.version == target.version or command_id in known.commands):
            return {**row, "version": known.version, "changed": False}
        # A label that went with its playbook may be set again: that is another command.
        moved = str(known.command_offset) if known else f"version {(await wanted(log, name)).version}"
        command = Command(
            command_id=command_id or content_id("promote", name, label, str(target.version), moved),
            playbook=name,
            kind="promote",
            label=label,
            version=target.version,
            issued_at_ms=SystemClock().now_ms(),
        )
        async with ensure_publisher(settings, servers):
            found = await run_promotion(log, command, timeout_s)
        return {**row, "version": found.version, "changed": True}


def labels(name: MaybeName = None, *, bootstrap_servers: Servers = None, as_json: AsJson = False) -> None:
    """List labels: which version each points at, how far that is from the newest."""
    rows = asyncio.run(_labels(load_settings(bootstrap_servers=bootstrap_servers), name))
    if as_json:
        print_json(rows)
        return
    table = Table("playbook", "label", "version", "newest", "moved (UTC)", "by", box=None)
    for row in rows:
        counts = (str(row["version"]), str(row["newest"]))
        table.add_row(
            row["name"], row["label"], *counts, moment(row["moved_at_ms"]), Text(clean(row["issued_by"]))
        )
    output().print(table if rows else "no labels yet; 'combee playbook promote' sets one")


async def _labels(settings: Settings, name: str | None) -> list[dict[str, Any]]:
    from combee.cli.log import open_log  # noqa: PLC0415 - --help stays quick

    async with open_log(settings) as (log, _):
        known = await all_labels(log)
        newest = await newest_playbooks(log)
    return [
        {
            "name": one.playbook,
            "label": one.label,
            "version": one.version,
            "newest": newest[one.playbook].version,
            "moved_at_ms": one.moved_at_ms,
            "issued_by": one.issued_by,
        }
        for one in known
        if one.playbook in newest and name in {None, one.playbook}
    ]
