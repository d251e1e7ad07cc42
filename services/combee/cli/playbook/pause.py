"""``combee playbook pause`` and ``resume``: a playbook learns nothing for a while, and loses nothing."""

import asyncio
from typing import Annotated

import typer

from combee.adapters.clock import SystemClock, moment
from combee.adapters.ports import FatalError, Log
from combee.cli.shared.console import output, print_json
from combee.cli.shared.options import AsJson, CommandId, Name, Servers, Timeout
from combee.cli.shared.sending import Change, carry_out
from combee.core.log.replaying.selection import time_ms
from combee.core.playbook.pausing import WOULD_EXPIRE, order_of
from combee.log.commands.playbook import Commands, PreparedCommand


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(epilog="Example: combee playbook pause support/refunds --until 2026-01-31T15:00")(pause)
    app.command(epilog="Example: combee playbook resume support/refunds")(resume)


def pause(
    name: Name,
    *,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="such as 2026-01-31 or 2026-01-31T15:00 (UTC); else 'resume' ends it"
        ),
    ] = None,
    command_id: CommandId = None,
    timeout: Timeout = 30.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Pause learning: agents read on, what they send waits, and no model is called."""
    try:
        until_ms = None if until is None else time_ms(until)
    except ValueError as error:
        raise FatalError(f"--until: {error}") from error

    async def decide(_log: Log, commands: Commands) -> PreparedCommand:
        return await commands.pause(name, until_ms, command_id=command_id)

    change = asyncio.run(carry_out(name, decide, timeout_s=timeout, servers=bootstrap_servers))
    _show(change, as_json=as_json)


def resume(
    name: Name,
    *,
    command_id: CommandId = None,
    timeout: Timeout = 30.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """End a pause: everything that waited is learned from."""

    async def decide(_log: Log, commands: Commands) -> PreparedCommand:
        return await commands.resume(name, command_id=command_id)

    change = asyncio.run(carry_out(name, decide, timeout_s=timeout, servers=bootstrap_servers))
    _show(change, as_json=as_json)


def _show(change: Change, *, as_json: bool) -> None:
    playbook = change.playbook
    order = order_of([playbook.paused], SystemClock().now_ms())
    if as_json:
        print_json(
            {
                "name": playbook.name,
                "version": playbook.version,
                "changed": change.changed,
                "paused": order.model_dump() if order else None,
            }
        )
        return
    already = "" if change.changed else " already"
    if order is None:
        text = f"{playbook.name} learns{already}"
    else:
        why = f": {WOULD_EXPIRE}" if order.by_retention else ""
        text = (
            f"{playbook.name} is paused{already} until {moment(order.until_ms)} UTC{why}."
            f" 'combee playbook resume {playbook.name}' ends the pause"
        )
    output().print(text, markup=False, soft_wrap=True)
