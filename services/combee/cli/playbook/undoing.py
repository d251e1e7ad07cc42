"""``combee playbook rollback``, ``revoke`` and ``delete``: what takes something back, each as a new version."""

import asyncio
from typing import Annotated, Any

import typer

from combee.cli.console import confirmed, output, print_json, remark
from combee.cli.options import AsJson, CommandId, Name, Patience, Ref, Servers
from combee.cli.playbook.lookup import labels, newest_snapshots, resolved, versions, wanted
from combee.cli.playbook.view import version_title
from combee.clock import SystemClock
from combee.commands.sending import ensure_publisher, run_command
from combee.core.formats.files import says_the_same
from combee.core.identity import content_id
from combee.inspection import lineage
from combee.inspection.batches import newest_batches
from combee.ports import FatalError, Log
from combee.settings.loading import Settings, load_settings
from combee_schemas.command import Command, CommandKind
from combee_schemas.playbook import Playbook


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(epilog="Example: combee playbook rollback support/refunds 12")(rollback)
    app.command(epilog="Example: combee playbook revoke support/refunds r-1f3a r-77b0")(revoke)
    app.command(epilog="Example: combee playbook delete support/refunds --yes")(delete)


def rollback(
    name: Name,
    version: Ref,
    *,
    command_id: CommandId = None,
    timeout: Patience = 30.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Make a new version that says what an old one says; history is not rewritten, a deleted playbook comes back."""
    settings = load_settings(bootstrap_servers=bootstrap_servers)
    made, old, changed = asyncio.run(_rollback(settings, name, version, command_id, timeout))
    _tell(made, {"restored": old, "changed": changed}, as_json=as_json)


async def _rollback(
    settings: Settings, name: str, ref: str, command_id: str | None, timeout_s: float
) -> tuple[Playbook, int, bool]:
    from combee.cli.log import open_log  # noqa: PLC0415 - --help stays quick

    async with open_log(settings) as (log, servers):
        current = (await newest_snapshots(log)).get(name)
        if current is not None and current.origin == "delete":
            target = await _once(log, current, ref)
        else:
            target = await resolved(log, name, ref)
            current = await wanted(log, name)
        if command_id in current.commands or says_the_same(current, target, "json"):
            return current, target.version, False
        command = _command("rollback", current, command_id, str(target.version), version=target.version)
        async with ensure_publisher(settings, servers):
            return await run_command(log, command, timeout_s), target.version, True


async def _once(log: Log, gone: Playbook, ref: str) -> Playbook:
    """Return a version of a deleted playbook: its labels are gone, too."""
    found = [one async for one in versions(log, gone.name) if str(one.version) == ref]
    if not found:
        raise FatalError(
            f"{gone.name} is deleted: name the version to bring back, from 1 to {gone.version - 1}"
        )
    return found[0]


def revoke(
    name: Name,
    reflection_ids: Annotated[list[str], typer.Argument(help="ids of reflections; 'combee why' tells them")],
    *,
    command_id: CommandId = None,
    timeout: Patience = 30.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Take reflections back: entries that rest on them alone go, and they never count again."""
    settings = load_settings(bootstrap_servers=bootstrap_servers)
    before, made, serving = asyncio.run(_revoke(settings, name, reflection_ids, command_id, timeout))
    changed = made is not before
    counts = {entry.id: entry.evidence_count for entry in made.entries}
    fewer = sum(counts.get(one.id, one.evidence_count) < one.evidence_count for one in before.entries)
    _tell(made, {"revoked": list(made.revoked), "changed": changed, "labels": serving}, as_json=as_json)
    if fewer:
        remark(f"{fewer} entries rest on fewer reflections now")
    for label, version in serving.items():
        remark(
            f"{label} still serves version {version}, in which something rests on revoked reflections alone:"
            f" 'combee playbook promote {name} {label}' lets it serve version {made.version}"
        )


async def _revoke(
    settings: Settings, name: str, ids: list[str], command_id: str | None, timeout_s: float
) -> tuple[Playbook, Playbook, dict[str, int]]:
    """Return the version before, the newest one, and the labels that still serve what was revoked."""
    from combee.cli.log import open_log  # noqa: PLC0415 - --help stays quick

    async with open_log(settings) as (log, servers):
        made = current = await wanted(log, name)
        if unknown := await lineage.unknown(log, current, ids):
            raise FatalError(
                f"{name} has no reflection {', '.join(unknown)}: 'combee why ENTRY --playbook {name}' names those"
                " that an entry rests on"
            )
        if command_id not in current.commands and not set(ids) <= set(current.revoked):
            command = _command("revoke", current, command_id, *ids, reflection_ids=tuple(ids))
            async with ensure_publisher(settings, servers):
                made = await run_command(log, command, timeout_s)
        pointing = (await labels(log)).get(name, {})
        past = {one.version: one async for one in versions(log, name) if one.version in pointing.values()}

        async def exactly(number: int) -> Playbook | None:
            return past.get(number)

        return current, made, await lineage.labels_serving(log, pointing, exactly, made.revoked)


def delete(
    name: Name,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    command_id: CommandId = None,
    timeout: Patience = 30.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Delete a playbook and its labels for all subscribers; its history stays, and rollback brings it back."""
    settings = load_settings(bootstrap_servers=bootstrap_servers)
    made = asyncio.run(_delete(settings, name, command_id, timeout, yes=yes))
    if as_json:
        print_json({"name": name, "version": made.version, "deleted": True})
    else:
        back = f"'combee playbook rollback {name} {made.version - 1}' brings it back"
        output().print(
            f"{name} is deleted, as of version {made.version}; {back}", markup=False, soft_wrap=True
        )


async def _delete(
    settings: Settings, name: str, command_id: str | None, timeout_s: float, *, yes: bool
) -> Playbook:
    from combee.cli.log import open_log  # noqa: PLC0415 - --help stays quick

    async with open_log(settings) as (log, servers):
        before = (await newest_snapshots(log)).get(name)
        if before is not None and before.origin == "delete" and command_id in before.commands:
            return before
        current = await wanted(log, name)
        flying = (await newest_batches(log)).get(name, 0) - current.batch_sequence
        if flying > 0:
            remark(f"{flying} batches of {name} are on their way: they will start the name anew")
        if not (yes or _agrees(current)):
            raise FatalError("nothing was deleted; --yes deletes without asking")
        command = _command("delete", current, command_id)
        async with ensure_publisher(settings, servers):
            return await run_command(log, command, timeout_s)


def _agrees(current: Playbook) -> bool:
    question = f"delete {current.name} (version {current.version}, {len(current.entries)} entries)?"
    return confirmed(question)


def _command(
    kind: CommandKind, current: Playbook, command_id: str | None, *parts: str, **fields: Any
) -> Command:
    """Return a command whose id names what it does and to which version: sent twice, it has one effect."""
    derived = content_id(kind, current.name, *parts, str(current.version))
    common = {"playbook": current.name, "kind": kind, "issued_at_ms": SystemClock().now_ms()}
    return Command.model_validate({"command_id": command_id or derived, **common, **fields})


def _tell(made: Playbook, more: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json({"name": made.name, "version": made.version, "entries": len(made.entries), **more})
        return
    remark_ = "" if more["changed"] else "unchanged: "
    output().print(remark_ + version_title(made), markup=False, soft_wrap=True)
