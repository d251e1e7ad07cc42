"""``combee playbook edit`` and ``keep``, with which people change entries, and ``consolidate``, with the model."""

import asyncio
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from combee.adapters.ports import ConfigurationError, FatalError, Log
from combee.cli.playbook.files import STDIN, read_text
from combee.cli.playbook.lookup import find_version
from combee.cli.playbook.view import print_change
from combee.cli.shared.options import AsJson, CommandId, Name, Servers, Timeout
from combee.cli.shared.sending import Change, carry_out
from combee.core.formats.editing import editable, edited_version
from combee.log.commands.playbook import Commands, PreparedCommand
from combee.process.settings.loading import environment

DEFAULT_EDITOR = "vi"
ON_A_TERMINAL = {"vi", "vim", "nvim", "nano", "pico", "emacs", "joe", "micro", "hx"}
"""Editors that draw on a terminal; any other one may be a script."""


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(epilog="Example: combee playbook edit support/refunds")(edit)
    app.command(epilog="Example: combee playbook keep support/refunds calc-00012")(keep)
    app.command(epilog="Example: combee playbook consolidate support/refunds")(consolidate)


def consolidate(
    name: Name,
    *,
    command_id: CommandId = None,
    timeout: Timeout = 300.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Let the model merge similar entries and judge mostly harmful ones, in a separate batch."""

    async def decide(_log: Log, commands: Commands) -> PreparedCommand:
        return await commands.consolidate(name, command_id=command_id)

    change = asyncio.run(carry_out(name, decide, timeout_s=timeout, servers=bootstrap_servers))
    _print(change, {"before": len(change.prepared.current.entries)}, as_json=as_json)


def edit(
    name: Name,
    *,
    file: Annotated[
        str | None,
        typer.Option(help="read the edited text from this file instead of an editor; - reads standard input"),
    ] = None,
    command_id: CommandId = None,
    timeout: Timeout = 30.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Change entries in $VISUAL or $EDITOR; refused if somebody else has changed the same entry meanwhile."""
    written = ""

    async def decide(log: Log, commands: Commands) -> PreparedCommand:
        nonlocal written
        current = await find_version(log, name)
        if command_id in current.commands:
            return await commands.edit(name, "", command_id=command_id)
        written = read_text(file) if file else await asyncio.to_thread(open_editor, editable(current), name)
        version = edited_version(written) or current.version
        return await commands.edit(name, written, version, command_id=command_id)

    try:
        change = asyncio.run(carry_out(name, decide, timeout_s=timeout, servers=bootstrap_servers))
    except FatalError as error:
        if not written or file not in {None, STDIN}:
            raise
        raise FatalError(f"{error}{_kept(name, written)}") from error
    _print(change, as_json=as_json)


def _print(change: Change, more: Mapping[str, Any] | None = None, *, as_json: bool) -> None:
    changes = [made.model_dump(mode="json") for made in change.playbook.changes] if change.changed else []
    more = {**(more or {}), "diff": changes}
    print_change(change.playbook, more, changed=change.changed, as_json=as_json, with_diff=True)


def keep(
    name: Name,
    entry_ids: Annotated[list[str], typer.Argument(help="ids of entries")],
    *,
    command_id: CommandId = None,
    timeout: Timeout = 30.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Confirm entries by hand: proposed ones become active, and no single source can change them."""

    async def decide(_log: Log, commands: Commands) -> PreparedCommand:
        return await commands.keep(name, entry_ids, command_id=command_id)

    hint = f": 'combee playbook show {name} --all' lists all entries"
    _print(
        asyncio.run(carry_out(name, decide, timeout_s=timeout, servers=bootstrap_servers, hint=hint)),
        as_json=as_json,
    )


def _require_terminal(editor: str, name: str) -> None:
    """Refuse an editor that would draw on a terminal where there is none.

    Raises
    ------
    ConfigurationError
        The message says how to edit without one.
    """
    if Path(editor.split(maxsplit=1)[0]).name in ON_A_TERMINAL and not (
        sys.stdin.isatty() and sys.stdout.isatty()
    ):
        raise ConfigurationError(
            f"{editor} needs a terminal, and there is none: 'EDITOR=cat combee playbook edit {name}' prints the text,"
            f" and 'combee playbook edit {name} --file FILE' (- is standard input) reads it after your changes"
        )


def open_editor(text: str, name: str) -> str:
    """Return a playbook's text after a person has edited it in their editor.

    Raises
    ------
    FatalError
        If the editor cannot be started, has no terminal or fails.
    """
    env = environment()
    editor = env.get("VISUAL") or env.get("EDITOR") or DEFAULT_EDITOR
    _require_terminal(editor, name)
    with tempfile.TemporaryDirectory(prefix="combee-edit-") as folder:
        path = Path(folder) / "playbook.md"
        path.write_bytes(text.encode())
        try:
            done = subprocess.run([*shlex.split(editor), str(path)], check=False)  # noqa: S603 - the user's own editor
        except (OSError, ValueError) as error:
            raise FatalError(f"cannot start {editor!r} ({error}): set EDITOR, or use --file") from error
        if done.returncode:
            raise FatalError(f"{editor!r} ended with {done.returncode}: nothing was changed")
        return read_text(str(path))


def _kept(name: str, text: str) -> str:
    """Save a person's refused edit and return a text with its path."""
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", prefix="combee-edit-", suffix=".md", delete=False
    ) as kept:
        kept.write(text)
    return (
        f"\n  your text is kept in {kept.name}; 'combee playbook diff {name}' shows what changed meanwhile: merge"
        f" that in, put the newest version into the title, and use 'combee playbook edit {name} --file'"
    )
