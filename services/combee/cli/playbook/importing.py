"""``combee playbook import``: a file becomes the next version."""

import asyncio
from typing import Annotated

import typer

from combee.cli.console import output, print_json
from combee.cli.options import AsJson, Name, Servers, as_format, checked_form
from combee.cli.playbook.files import load
from combee.cli.playbook.lookup import newest_snapshots
from combee.cli.playbook.view import version_title
from combee.clock import SystemClock
from combee.commands.sending import ensure_publisher, run_command
from combee.core.formats.files import Format, carried_over, held_by, says_the_same, write_playbook
from combee.core.identity import content_id
from combee.core.playbook.apply import empty
from combee.settings.loading import Settings, load_settings
from combee_schemas.command import Command
from combee_schemas.playbook import Playbook


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("import", epilog="Example: combee playbook import support/refunds refunds.md")(import_)


def import_(
    name: Name,
    file: Annotated[str, typer.Argument(help="the playbook to read; - reads standard input")],
    *,
    form: Annotated[
        str, typer.Option("--format", help="auto, ace, gepa, json, kayba, md or skill", callback=checked_form)
    ] = "auto",
    command_id: Annotated[
        str | None, typer.Option("--id", help="of this import: a repeat does nothing")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0, help="wait so long for the new version (s)")] = 30.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Replace a playbook's content by a file's; nothing happens if it says the same already."""
    settings = load_settings(bootstrap_servers=bootstrap_servers)
    given, found = load(file, None if form == "auto" else as_format(form), name=name)
    given = given.model_copy(update={"name": name})
    version, changed = asyncio.run(_import(settings, given, found, command_id, timeout))
    if as_json:
        counts = {"version": version.version, "entries": len(version.entries)}
        print_json({"name": name, **counts, "changed": changed, "format": found})
    else:
        remark = "" if changed else "unchanged: "
        output().print(remark + version_title(version), markup=False, soft_wrap=True)


async def _import(
    settings: Settings, given: Playbook, form: Format, command_id: str | None, timeout_s: float
) -> tuple[Playbook, bool]:
    from combee.cli.log import open_log  # noqa: PLC0415 - --help stays quick

    async with open_log(settings) as (log, servers):
        # What remains of a deleted playbook counts, too: the same text on another version is another import.
        current = (await newest_snapshots(log)).get(given.name) or empty(given.name)
        same = current.origin != "delete" and says_the_same(current, given, form)
        if same or command_id in current.commands:
            return current, False
        async with ensure_publisher(settings, servers):
            command = import_command(current, given, form, command_id)
            return await run_command(log, command, timeout_s), True


def import_command(current: Playbook, given: Playbook, form: Format, command_id: str | None) -> Command:
    """Return the command that makes ``given`` the next version.

    Its id names content and base version: sending it twice has one effect, while going back to an earlier
    content is a new import.
    """
    text = write_playbook(given, "json")
    return Command(
        command_id=command_id or content_id("import", given.name, text, str(current.version)),
        playbook=given.name,
        kind="import",
        entries=carried_over(current, given, form),
        sections=given.sections,
        counters=given.counters,
        holds=held_by(current, given, form),
        issued_at_ms=SystemClock().now_ms(),
    )
