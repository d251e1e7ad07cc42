"""``combee branch adopt``: publish a branch's entries as its playbook's next version."""

import asyncio
from typing import Annotated

import typer

from combee.adapters.ports import ConfigurationError, Log
from combee.cli.playbook.view import print_change
from combee.cli.shared.console import remark
from combee.cli.shared.options import (
    AsJson,
    CommandId,
    Servers,
    Timeout,
    Version,
    branch_names,
    checked_line,
)
from combee.cli.shared.sending import carry_out
from combee.log.commands.playbook import Commands, PreparedCommand
from combee_schemas.base import playbook_of


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee branch adopt support/refunds@small")(adopt)


def _checked_branch(value: str) -> str:
    if playbook_of(checked_line(value)) == value:
        raise ConfigurationError(f"{value} is not a branch: name one, such as {value}@BRANCH")
    return value


def adopt(
    line: Annotated[
        str,
        typer.Argument(
            metavar="NAME@BRANCH",
            help="the branch, such as support/refunds@small",
            callback=_checked_branch,
            autocompletion=branch_names,
        ),
    ],
    *,
    version: Version = None,
    command_id: CommandId = None,
    timeout: Timeout = 30.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Publish a branch's entries as the playbook's next version; the branch stays and keeps learning."""
    name = playbook_of(line)

    async def decide(_log: Log, commands: Commands) -> PreparedCommand:
        return await commands.adopt(name, line, version, command_id=command_id)

    change = asyncio.run(carry_out(name, decide, timeout_s=timeout, servers=bootstrap_servers))
    made = change.playbook
    adopted = made.adopted.model_dump() if made.adopted else None
    print_change(made, {"adopted": adopted}, changed=change.changed, as_json=as_json, with_diff=True)
    if not as_json:
        remark(f"{line} keeps learning; 'combee playbook delete {line}' ends it")
