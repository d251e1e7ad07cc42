"""``combee playbook rollback``, ``revoke`` and ``delete``: what takes something back, each as a new version."""

import asyncio
from typing import Annotated, Any

import typer

from combee.cli.playbook.lookup import version_number
from combee.cli.playbook.view import print_version
from combee.cli.shared.console import confirmed, output, print_json, remark
from combee.cli.shared.options import AsJson, CommandId, Name, Patience, Ref, Servers
from combee.cli.shared.sending import Change, carry_out
from combee.commands.playbook import Commands, Decision
from combee.core.commands import is_deleted, no_version
from combee.history import newest_snapshot
from combee.inspection.batches import newest_batches
from combee.ports import FatalError, Log
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
    restored = 0

    async def decide(log: Log, commands: Commands) -> Decision:
        nonlocal restored
        restored = await _number(log, name, version)
        return await commands.rollback(name, restored, command_id=command_id)

    change = asyncio.run(carry_out(name, decide, timeout_s=timeout, servers=bootstrap_servers))
    _print(change, {"restored": restored, "changed": change.changed}, as_json=as_json)


async def _number(log: Log, name: str, ref: str) -> int:
    """Return the version to go back to; of a deleted playbook the labels are gone, too."""
    current = await newest_snapshot(log, name)
    if current and is_deleted(current) and not ref.isdigit():
        raise FatalError(no_version(current, ref))
    version = await version_number(log, name, ref)
    return (current.version if current else 0) if version is None else version


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

    async def decide(_log: Log, commands: Commands) -> Decision:
        return await commands.revoke(name, reflection_ids, command_id=command_id)

    hint = f": 'combee why ENTRY --playbook {name}' names those that an entry rests on"
    change = asyncio.run(carry_out(name, decide, timeout_s=timeout, servers=bootstrap_servers, hint=hint))
    made, serving = change.playbook, dict(change.decision.labels)
    more = {"revoked": list(made.revoked), "changed": change.changed, "labels": serving}
    _print(change, more, as_json=as_json)
    if fewer := _weakened(change.decision.current, made):
        remark(
            f"{fewer} entries rest on fewer reflections now; what a revoked one corrected still says what it said:"
            " 'combee replay' with --without learns it anew"
        )
    for label, version in serving.items():
        remark(
            f"{label} still serves version {version}, in which something rests on revoked reflections alone:"
            f" 'combee playbook promote {name} {label}' lets it serve version {made.version}"
        )


def _weakened(before: Playbook, after: Playbook) -> int:
    """Return how many entries stayed and rest on fewer reflections than before."""
    counts = {entry.id: entry.evidence_count for entry in after.entries}
    return sum(counts.get(entry.id, entry.evidence_count) < entry.evidence_count for entry in before.entries)


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

    async def decide(log: Log, commands: Commands) -> Decision:
        decision = await commands.delete(name, command_id=command_id)
        if decision.command is not None:
            await _confirm(log, decision.current, yes=yes)
        return decision

    change = asyncio.run(carry_out(name, decide, timeout_s=timeout, servers=bootstrap_servers))
    if as_json:
        print_json({"name": name, "version": change.version, "deleted": True})
        return
    back = f"'combee playbook rollback {name} {change.version - 1}' brings it back"
    output().print(f"{name} is deleted, as of version {change.version}; {back}", markup=False, soft_wrap=True)


async def _confirm(log: Log, current: Playbook, *, yes: bool) -> None:
    in_flight = (await newest_batches(log)).get(current.name, 0) - current.batch_sequence
    if in_flight > 0:
        remark(f"{in_flight} batches of {current.name} are on their way: they will start the name anew")
    question = f"delete {current.name} (version {current.version}, {len(current.entries)} entries)?"
    if not (yes or confirmed(question)):
        raise FatalError("nothing was deleted; --yes deletes without asking")


def _print(change: Change, more: dict[str, Any], *, as_json: bool) -> None:
    made = change.playbook
    if as_json:
        print_json({"name": made.name, "version": made.version, "entries": len(made.entries), **more})
    else:
        print_version(made, changed=change.changed)
