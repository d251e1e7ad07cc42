"""``combee playbook import``, ``export`` and ``convert``: playbooks in other programs' formats."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from combee.adapters.ports import Log
from combee.cli.playbook.files import deliver, load, stem
from combee.cli.playbook.lookup import version_of_options
from combee.cli.playbook.view import print_change
from combee.cli.shared.console import output
from combee.cli.shared.options import (
    AsJson,
    CommandId,
    Everything,
    FormOrNone,
    Label,
    Name,
    Servers,
    Timeout,
    Version,
    as_format,
    checked_form,
    checked_name,
)
from combee.cli.shared.sending import carry_out
from combee.cli.shared.settings import deployed_settings
from combee.core.formats.files import natural_form
from combee.core.playbook.budget import budget_text
from combee.log.commands.playbook import Commands, PreparedCommand


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(epilog="Example: combee playbook export support/refunds --format md --out refunds.md")(export)
    app.command("import", epilog="Example: combee playbook import support/refunds refunds.md")(import_)
    app.command(epilog="Example: combee playbook convert playbook.txt --to json --out playbook.json")(convert)


def export(
    name: Name,
    *,
    version: Version = None,
    label: Label = None,
    form: FormOrNone = None,
    out: Annotated[Path | None, typer.Option(help="write it here instead of standard output")] = None,
    everything: Everything = False,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Write one version, the newest by default, in another program's format."""
    settings = deployed_settings(bootstrap_servers=bootstrap_servers)
    playbook = asyncio.run(version_of_options(settings, name, version, label))
    chosen = as_format(form) if form else natural_form(playbook)
    deliver(playbook, chosen, out, everything=everything, as_json=as_json)


def import_(
    name: Name,
    file: Annotated[str, typer.Argument(help="the playbook to read; - reads standard input")],
    *,
    form: Annotated[
        str, typer.Option("--format", help="auto, ace, gepa, json, kayba, md or skill", callback=checked_form)
    ] = "auto",
    command_id: CommandId = None,
    timeout: Timeout = 30.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Replace a playbook's content with a file's; nothing happens if the content is the same."""
    given, read_as = load(file, None if form == "auto" else as_format(form), name=name)

    async def decide(_log: Log, commands: Commands) -> PreparedCommand:
        return await commands.import_(name, given, read_as, command_id=command_id)

    change = asyncio.run(carry_out(name, decide, timeout_s=timeout, servers=bootstrap_servers))
    made = change.playbook
    print_change(made, {"format": read_as}, changed=change.changed, as_json=as_json)
    configured = deployed_settings(bootstrap_servers=bootstrap_servers).playbook.playbook_tokens
    if (budget := budget_text(made, configured)) and not as_json:
        output().print(budget, soft_wrap=True)


def convert(
    file: Annotated[str, typer.Argument(help="the playbook to read; - reads standard input")],
    *,
    to: Annotated[str, typer.Option(help="ace, gepa, json, kayba, md or skill", callback=as_format)],
    from_: Annotated[
        str, typer.Option("--from", help="auto, ace, gepa, json, kayba, md or skill", callback=checked_form)
    ] = "auto",
    name: Annotated[
        str | None, typer.Option(help="the playbook's name; else the name in the file, else the file's name")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="write it here instead of standard output")] = None,
    as_json: AsJson = False,
) -> None:
    """Convert a playbook file to another format; entries, their order and their counters are kept."""
    given = checked_name(name) if name is not None else None
    playbook, _ = load(file, None if from_ == "auto" else as_format(from_), name=stem(file))
    if given is not None:
        playbook = playbook.model_copy(update={"name": given})
    deliver(playbook, as_format(to), out, everything=True, as_json=as_json)
