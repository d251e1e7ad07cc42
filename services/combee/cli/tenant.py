"""``combee tenant delete``: delete every playbook of a tenant, and report which records remain."""

import asyncio
from collections.abc import Iterator
from typing import Annotated

import typer

from combee.adapters.clock import SystemClock
from combee.adapters.ports import FatalError, Log
from combee.assembly.local import publisher
from combee.cli.shared import sending
from combee.cli.shared.console import output, print_json, remark
from combee.cli.shared.log import open_log
from combee.cli.shared.options import AsJson, Servers, Timeout
from combee.cli.shared.settings import deployed_settings
from combee.core.names.tenants import tenant_of
from combee.log.commands.playbook import Commands
from combee.log.history import newest_playbooks
from combee_schemas.base import DAY_MS, playbook_of
from combee_schemas.playbook import Playbook
from combee_schemas.topics import FOR_EVER, TOPICS, AnyTopic

tenant = typer.Typer(help="Tenants (name spaces of playbooks): delete one.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.add_typer(tenant, name="tenant")


@tenant.callback()
def group() -> None:
    """Tenants (name spaces of playbooks): delete one."""


@tenant.command(epilog="Example: combee tenant delete support --yes")
def delete(
    name: Annotated[str, typer.Argument(help="the part of its playbooks' names before the first /")],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    timeout: Timeout = 30.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Delete every playbook and branch of a tenant for all subscribers, and show which records remain."""
    deleted = asyncio.run(_delete(name, yes=yes, timeout_s=timeout, servers=bootstrap_servers))
    remains = dict(_remains())
    if as_json:
        print_json({"tenant": name, "deleted": deleted, "remains": remains})
        return
    output().print(f"deleted: {', '.join(deleted)}", markup=False, soft_wrap=True)
    for topic, how_long in remains.items():
        output().print(f"their records in {topic} stay {how_long}", markup=False, soft_wrap=True)
    remark("agents that still publish for them create them anew: revoke the tenant's keys or rights first")


def _remains() -> Iterator[tuple[str, str]]:
    """Yield the topics whose records of a playbook outlive it, and for how long."""
    for topic in TOPICS:
        if topic.cleanup != "compact":
            yield topic.name, _retention(topic)


def _retention(topic: AnyTopic) -> str:
    return "for ever" if topic.retention_ms == FOR_EVER else f"for {topic.retention_ms // DAY_MS} days"


async def _delete(name: str, *, yes: bool, timeout_s: float, servers: str | None) -> list[str]:
    settings = deployed_settings(bootstrap_servers=servers)
    async with open_log(settings) as (log, known_servers):
        lines = await _lines(log, name)
        question = f"delete {', '.join(line.name for line in lines)}: everything of {name}?"
        await sending.confirm_deletion(log, lines, question, yes=yes)
        commands = sending.commands_on(log, SystemClock())
        async with publisher.ensure_publisher(settings, known_servers, remark):
            for line in lines:
                await _delete_line(commands, line.name, timeout_s)
    return [line.name for line in lines]


async def _lines(log: Log, name: str) -> list[Playbook]:
    """Return a tenant's playbooks and branches, branches first."""
    playbooks = [
        playbook for line, playbook in (await newest_playbooks(log)).items() if tenant_of(line) == name
    ]
    if not playbooks:
        raise FatalError(f"no playbook's name begins with {name}/; 'combee playbook list' shows all")
    return sorted(playbooks, key=lambda line: (line.name == playbook_of(line.name), line.name))


async def _delete_line(commands: Commands, name: str, timeout_s: float) -> None:
    command = (await commands.delete(name)).command
    if command is not None and await commands.carried_out(command, timeout_s) is None:
        raise FatalError(
            f"{name} is not deleted after {timeout_s:.0f} s: the command is in the log and takes effect when publish"
            " processes it; run this again for the rest"
        )
