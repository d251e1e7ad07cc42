"""``combee playbook rollback``, ``revoke`` and ``delete``: what takes something back, each as a new version."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import typer

from combee.adapters.ports import FatalError, Log
from combee.cli.playbook.lookup import version_number
from combee.cli.playbook.view import print_change
from combee.cli.shared.console import output, print_json, remark
from combee.cli.shared.options import AsJson, CommandId, Name, Ref, Servers, Timeout
from combee.cli.shared.sending import carry_out, confirm_deletion
from combee.core.commands import is_deleted, no_version
from combee.core.playbook.operations import union
from combee.log.commands.playbook import Commands, PreparedCommand
from combee.log.commands.revocation import Outlook
from combee.log.history import newest_snapshot
from combee_schemas.base import branch_in
from combee_schemas.playbook import Playbook


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(epilog="Example: combee playbook rollback support/refunds 12")(rollback)
    app.command(epilog="Example: combee playbook revoke support/refunds r-1f3a source:shop")(revoke)
    app.command(epilog="Example: combee playbook delete support/refunds --yes")(delete)


def rollback(
    name: Name,
    version: Ref,
    *,
    command_id: CommandId = None,
    timeout: Timeout = 30.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Publish an old version's entries as a new version; a deleted playbook comes back, and history stays."""
    restored = 0

    async def decide(log: Log, commands: Commands) -> PreparedCommand:
        nonlocal restored
        restored = await _number(log, name, version)
        return await commands.rollback(name, restored, command_id=command_id)

    change = asyncio.run(carry_out(name, decide, timeout_s=timeout, servers=bootstrap_servers))
    print_change(change.playbook, {"restored": restored}, changed=change.changed, as_json=as_json)


async def _number(log: Log, name: str, ref: str) -> int:
    """Return the version to go back to; of a deleted playbook the labels are gone, too."""
    current = await newest_snapshot(log, name)
    if current and is_deleted(current) and not ref.isdigit():
        raise FatalError(no_version(current, ref))
    version = await version_number(log, name, ref)
    return (current.version if current else 0) if version is None else version


def revoke(
    name: Name,
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="RULE...",
            help="ids of reflections ('combee why' shows them) or traces, source:NAME, text:WORDS, since:TIME,"
            " until:TIME, between:TIME/TIME",
        ),
    ],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="say what it would do, and change nothing")
    ] = False,
    command_id: CommandId = None,
    timeout: Timeout = 30.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Take reflections back: entries that rest only on them are removed, others get their earlier text."""

    async def decide(_log: Log, commands: Commands) -> PreparedCommand:
        prepared = await commands.revoke(name, what, command_id=command_id)
        return replace(prepared, command=None) if dry_run else prepared

    hint = f": 'combee why ENTRY --playbook {name}' names those that an entry rests on"
    change = asyncio.run(carry_out(name, decide, timeout_s=timeout, servers=bootstrap_servers, hint=hint))
    outlook = change.prepared.outlook
    if dry_run and outlook is not None:
        _foresee(outlook, as_json=as_json)
        return
    made, serving = change.playbook, dict(change.prepared.labels)
    revoked = union(change.prepared.current.revoked, outlook.reflections if outlook else ())
    more = {"revoked": list(revoked), "labels": serving}
    print_change(made, more, changed=change.changed, as_json=as_json)
    if fewer := _weakened(change.prepared.current, made):
        remark(f"{fewer} entries rest on fewer reflections now")
    for on_line in (outlook, *outlook.branches) if outlook else ():
        for label, version in on_line.labels.items():
            remark(
                f"{label} still serves version {version}, in which something rests on revoked reflections:"
                f" 'combee playbook promote {on_line.current.name} {label}' lets it serve the newest version"
            )
        for line in _left_to_do(on_line):
            remark(line)


def _foresee(outlook: Outlook, *, as_json: bool) -> None:
    if as_json:
        print_json(outlook.as_document())
        return
    lines = [f"{len(outlook.reflections)} reflections: {', '.join(outlook.reflections)}"]
    on_lines = (outlook, *outlook.branches)
    for on_line in on_lines:
        if outlook.branches:
            lines.append(f"on {on_line.current.name}:")
        lines += _foreseen(on_line)
    asks = any(on_line.recomputed.again for on_line in on_lines)
    lines.append(f"{'' if asks else 'it makes no model call; '}nothing was changed")
    for line in lines:
        output().print(line, markup=False, soft_wrap=True)


def _foreseen(outlook: Outlook) -> list[str]:
    """Return what a revocation does on one line."""
    document = outlook.as_document()
    lines = [f"goes: {entry['id']} {entry['content']}" for entry in document["removed"]]
    lines += [
        f"says again: {entry['id']} {entry['after']} (now: {entry['before']})"
        for entry in document["changed_back"]
    ]
    lines += [f"comes back: {entry['id']} {entry['content']}" for entry in document["returned"]]
    lines += [
        f"tags taken back: {entry_id} {helpful} helpful, {harmful} harmful"
        for entry_id, helpful, harmful in outlook.counters
    ]
    lines += [f"{label} serves it: version {version}" for label, version in outlook.labels.items()]
    return [*lines, *_left_to_do(outlook)]


def _left_to_do(outlook: Outlook) -> Iterator[str]:
    """Yield what is asked about again, what a revocation does not do, and what it drops because nobody could."""
    for mixed in outlook.mixed("again"):
        yield (
            f"{mixed.kind} of batch {mixed.sequence} is dropped, and its {len(mixed.again)} other reflections are"
            f" asked about again: {', '.join(mixed.entry_ids)}"
        )
    if outlook.recomputed.again:
        yield f"{len(outlook.recomputed.again)} reflections are asked about again, in at most {outlook.calls} calls"
    for mixed in outlook.mixed("stays"):
        yield (
            f"{mixed.kind} of batch {mixed.sequence} rests on other reflections and stays, in words that revoked ones"
            f" taught: {', '.join(mixed.entry_ids)}; 'combee playbook edit' changes them by hand"
        )
    for mixed in outlook.mixed("dropped"):
        yield (
            f"{mixed.kind} of batch {mixed.sequence} is dropped: {outlook.why_dropped}: {', '.join(mixed.entry_ids)}"
        )
    if outlook.recomputed.reads:
        batches = ", ".join(map(str, outlook.recomputed.reads))
        yield f"calls of these batches read what is revoked and stay as they are: {batches}"
    for copy, entry_id in outlook.copies:
        yield f"{copy} says the same in {entry_id}: a revocation there, or an edit, takes it away"


def _weakened(before: Playbook, after: Playbook) -> int:
    """Return how many entries stayed and rest on fewer reflections than before."""
    counts = {entry.id: entry.evidence_count for entry in after.entries}
    return sum(counts.get(entry.id, entry.evidence_count) < entry.evidence_count for entry in before.entries)


def delete(
    name: Name,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    command_id: CommandId = None,
    timeout: Timeout = 30.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Delete a playbook and its labels for all subscribers; its history stays, and rollback brings it back."""

    async def decide(log: Log, commands: Commands) -> PreparedCommand:
        prepared = await commands.delete(name, command_id=command_id)
        if prepared.command is not None:
            current = prepared.current
            question = f"delete {name} (version {current.version}, {len(current.entries)} entries)?"
            await confirm_deletion(log, [current], question, yes=yes)
        return prepared

    change = asyncio.run(carry_out(name, decide, timeout_s=timeout, servers=bootstrap_servers))
    if as_json:
        print_json({"name": name, "version": change.version, "deleted": True})
        return
    how = ", but it learns no more" if branch_in(name) else ""
    back = f"'combee playbook rollback {name} {change.version - 1}' brings it back{how}"
    output().print(f"{name} is deleted, as of version {change.version}; {back}", markup=False, soft_wrap=True)
