"""Commands from the command line: decide, send to the services, wait for the effect."""

import getpass
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from combee.adapters.clock import SystemClock
from combee.adapters.ports import Clock, FatalError, Log
from combee.assembly.backends import known_sources
from combee.assembly.local import publisher
from combee.cli.playbook.lookup import missing_playbook
from combee.cli.shared.console import confirmed, remark
from combee.cli.shared.log import open_log
from combee.cli.shared.settings import deployed_settings
from combee.core.commands import RefusedError, subject
from combee.core.names.sources import NOBODY, KnownSources
from combee.log.commands.log_store import LogStore
from combee.log.commands.playbook import Commands, Effect, PreparedCommand
from combee.log.history import newest_snapshot
from combee.log.inspection.batches import in_flight, newest_sequences
from combee_schemas.command import Command
from combee_schemas.playbook import Playbook

Decide = Callable[[Log, Commands], Awaitable[PreparedCommand]]


def issuer() -> str:
    """Return the user's name for command records."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        name = str(os.geteuid())
    return f"user:{name}@{socket.gethostname()}"


def commands_on(
    log: Log, clock: Clock, *, embeds: bool = False, known: Callable[[], KnownSources] = lambda: NOBODY
) -> Commands:
    """Return the commands, issued by the user of the command line."""
    return Commands(log, LogStore(log), clock, issued_by=issuer(), embeds=embeds, known=known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The result of a command."""

    prepared: PreparedCommand
    made: Effect | None
    """None if there was nothing to do."""

    @property
    def changed(self) -> bool:
        """Whether the command changed anything."""
        return self.made is not None

    @property
    def version(self) -> int:
        """The current version; for a label, the version that it points at."""
        return self.made.version if self.made else self.prepared.version

    @property
    def playbook(self) -> Playbook:
        """The version that the command made, else the newest."""
        return self.made if isinstance(self.made, Playbook) else self.prepared.current


async def carry_out(
    name: str, decide: Decide, *, timeout_s: float, servers: str | None, hint: str = ""
) -> Change:
    """Decide, send and wait for the effect; ``hint`` is added to errors about unknown names.

    Raises
    ------
    FatalError
        If the command is refused, or has no effect after ``timeout_s``.
    """
    settings = deployed_settings(bootstrap_servers=servers)
    async with open_log(settings) as (log, known_servers):
        commands = commands_on(
            log,
            SystemClock(),
            embeds=settings.model.embedding_model is not None,
            known=lambda: known_sources(settings.sources),
        )
        try:
            prepared = await decide(log, commands)
            if (command := prepared.command) is None:
                return Change(prepared=prepared, made=None)
            forkers = ("shuffle",) if command.kind == "branch" else ()
            async with publisher.ensure_publisher(settings, known_servers, remark, (*forkers, "publish")):
                made = await commands.carried_out(command, timeout_s)
        except RefusedError as error:
            if error.reason == "absent":
                raise await missing_playbook(log, name) from error
            raise FatalError(f"{error}{hint if error.reason == 'unknown' else ''}") from error
        if made is None:
            raise FatalError(await _overdue(log, command, timeout_s))
    return Change(prepared=prepared, made=made)


async def _overdue(log: Log, command: Command, timeout_s: float) -> str:
    """Return the error text: the missing effect and what it waits for."""
    who = "shuffle, scan and publish get" if command.kind == "consolidate" else "publish gets"
    awaited, when = "new version", f"when {who} to it"
    if command.kind == "promote":
        awaited = f"label {command.label}"
    elif command.kind == "branch":
        playbook = await newest_snapshot(log, command.playbook)
        count = in_flight(await newest_sequences(log), command.playbook, playbook)
        when = (
            f"when shuffle and publish get to it and {command.playbook} has no batch in flight (now: {count})"
        )
    return (
        f"{subject(command)} has no {awaited} after {timeout_s:.0f} s: the {command.kind} is in the log and takes"
        f" effect {when}; 'combee status' shows its backlog, --timeout waits longer"
    )


async def confirm_deletion(log: Log, lines: Sequence[Playbook], question: str, *, yes: bool) -> None:
    """Warn about batches in flight, which create a deleted line anew, and ask unless ``yes``.

    Raises
    ------
    FatalError
        If the user does not agree.
    """
    newest = await newest_sequences(log)
    for line in lines:
        if count := in_flight(newest, line.name, line):
            remark(f"{count} batches of {line.name} are in flight and will create the name anew")
    if not (yes or confirmed(question)):
        raise FatalError("nothing was deleted; --yes deletes without asking")
