"""``combee playbook edit``: an editor opens, and what changed becomes the next version."""

import asyncio
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from combee.cli.console import output, print_json
from combee.cli.options import AsJson, CommandId, Name, Patience, Servers
from combee.cli.playbook.files import STDIN, read_text
from combee.cli.playbook.lookup import wanted
from combee.cli.playbook.view import diff_lines, version_title
from combee.clock import SystemClock
from combee.commands.sending import ensure_publisher, run_command
from combee.core.formats.editing import edit_operations, editable, edited_version
from combee.core.identity import content_id
from combee.ports import FatalError
from combee.settings.loading import Settings, environment, load_settings
from combee_schemas.command import Command
from combee_schemas.playbook import Playbook

DEFAULT_EDITOR = "vi"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee playbook edit support/refunds")(edit)


def edit(
    name: Name,
    *,
    file: Annotated[
        str | None, typer.Option(help="take the edited text from here, - standard input; no editor")
    ] = None,
    command_id: CommandId = None,
    timeout: Patience = 30.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Change entries in $VISUAL or $EDITOR; refused if an entry that you changed has changed meanwhile."""
    settings = load_settings(bootstrap_servers=bootstrap_servers)
    made, changed = asyncio.run(_edit(settings, name, file, command_id, timeout))
    if as_json:
        counts = {"version": made.version, "entries": len(made.entries), "changed": changed}
        changes = [change.model_dump(mode="json") for change in made.changes] if changed else []
        print_json({"name": name, **counts, "diff": changes})
        return
    output().print(("" if changed else "unchanged: ") + version_title(made), markup=False, soft_wrap=True)
    for line in diff_lines(made) if changed else ():
        output().print(line, markup=False, soft_wrap=True)


async def _edit(
    settings: Settings, name: str, file: str | None, command_id: str | None, timeout_s: float
) -> tuple[Playbook, bool]:
    from combee.cli.log import open_log  # noqa: PLC0415 - --help stays quick

    async with open_log(settings) as (log, servers):
        current = await wanted(log, name)
        if command_id in current.commands:
            return current, False
        text = read_text(file) if file else await asyncio.to_thread(edited, editable(current))
        try:
            base = await wanted(log, name, edited_version(text) or current.version)
            command = edit_command(base, text, command_id)
            if not command.operations:
                return current, False
            async with ensure_publisher(settings, servers):
                return await run_command(log, command, timeout_s), True
        except FatalError as error:
            raise FatalError(f"{error}{'' if file and file != STDIN else _kept(name, text)}") from error


def edit_command(base: Playbook, text: str, command_id: str | None) -> Command:
    """Return the command that makes of ``base`` what ``text`` says.

    Raises
    ------
    FatalError
        If the text cannot be read.
    """
    try:
        operations = edit_operations(base, text)
    except ValueError as error:
        raise FatalError(f"the edited text: {error}") from error
    return Command(
        command_id=command_id or content_id("edit", base.name, str(base.version), text),
        playbook=base.name,
        kind="edit",
        operations=operations,
        base_version=base.version,
        issued_at_ms=SystemClock().now_ms(),
    )


def edited(text: str) -> str:
    """Return what a person makes of a text in their editor.

    Raises
    ------
    FatalError
        If the editor cannot be started or fails.
    """
    env = environment()
    editor = env.get("VISUAL") or env.get("EDITOR") or DEFAULT_EDITOR
    with tempfile.TemporaryDirectory(prefix="combee-edit-") as folder:
        path = Path(folder) / "playbook.md"
        path.write_bytes(text.encode())
        try:
            done = subprocess.run([*shlex.split(editor), str(path)], check=False)  # noqa: S603 - the user's own
        except (OSError, ValueError) as error:
            raise FatalError(f"cannot start {editor!r} ({error}): set EDITOR, or use --file") from error
        if done.returncode:
            raise FatalError(f"{editor!r} ended with {done.returncode}: nothing was changed")
        return read_text(str(path))


def _kept(name: str, text: str) -> str:
    """Save the work of a person and say where it is."""
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", prefix="combee-edit-", suffix=".md", delete=False
    ) as kept:
        kept.write(text)
    return (
        f"\n  your text is kept in {kept.name}; 'combee playbook diff {name}' shows what changed meanwhile: work that"
        f" in, put the newest version into the title, and 'combee playbook edit {name} --file' takes it"
    )
