"""Commands: the next version of a playbook, the first one of a branch, or a label; pure."""

from collections.abc import Iterable, Mapping, Sequence

from pydantic import ValidationError

from combee.core.playbook.budget import budget_of, needed_tokens, oversize
from combee.core.playbook.lineage import evidence
from combee.core.playbook.lineage.branching import (
    Adoption,
    as_earlier,
    dated,
    overtaken,
    taken_over,
    with_revocations_of,
)
from combee.core.playbook.lineage.recomputing import Recomputation, Recomputed
from combee.core.playbook.lineage.rejecting import is_batch_rule, without_entries, without_rejected
from combee.core.playbook.operations import clean_command, union
from combee.core.playbook.pausing import order_of
from combee.core.playbook.sections import clash, number_of, section_order
from combee.core.playbook.trust import activated
from combee.core.playbook.versions import InapplicableError, edited, empty, next_version, remembered
from combee_schemas.base import is_branch_of
from combee_schemas.command import Command
from combee_schemas.playbook import AppliedBatch, Change, Entry, Label, PauseOrder, Playbook
from combee_schemas.scan import Operation, Update

CONTENT = ("entries", "sections", "counters", "holds", "budget_tokens", "counted_offset", "again", "trust")
"""A version's content, the extent of its tags, the reflections it lacks, and the posture under which the names in it
counted; all other fields are bookkeeping."""


def is_executed(current: Playbook | Label, command: Command, offset: int) -> bool:
    """Return whether a command was already executed: it is a repeat, by place or by id."""
    return offset <= current.command_offset or command.command_id in current.commands


def after_command(
    current: Playbook,
    command: Command,
    offset: int,
    *,
    target: Playbook | None,
    budget_tokens: int,
    now_ms: int,
    adoption: Adoption | None = None,
    recomputed: Recomputed | None = None,
) -> Playbook:
    """Return the version that ``command`` makes of ``current``.

    ``target`` is a rollback's old version, or an edit's base version if that is not ``current``. ``recomputed`` is
    the recomputed content if something is revoked: for a revocation that of ``current``, for a rollback of
    ``target``, for an adoption of the adopted version; None: the updates behind it are unknown.

    Raises
    ------
    InapplicableError
        If the command makes no version, or lacks an input.
    """
    command = clean_command(command)
    match command.kind:
        case "import":
            changed = _imported(current, command, budget_tokens)
        case "edit":
            _refuse_stale(current, command.operations, target)
            changed = _edited(current, command, budget_tokens)
        case "revoke":
            changed = _recomputed(with_revocation(current, command), recomputed, budget_tokens)
            changed = _begun_anew(without_rejected(changed, current), current)
            changed = _without_waiting(changed, current, command)
        case "rollback" if target is not None:
            changed = _with_content_of(current, target, recomputed, budget_tokens, rejected_by=current)
            change = Change(kind="rollback", detail=f"to version {target.version}")
            changed = _begun_anew(changed, current)
            changed = changed.model_copy(update={"changes": (change, *changed.changes)})
        case "adopt" if adoption is not None:
            if reason := adoption.refusal():
                raise InapplicableError(reason)
            content = _with_content_of(
                adoption.prepared(current), adoption.target, recomputed, budget_tokens, rejected_by=current
            )
            changed = taken_over(adoption, current, content)
        case "pause" if current.version and current.origin != "delete":
            known = order_of([current.paused], now_ms)
            order = PauseOrder(
                since_ms=known.since_ms if known else now_ms,
                until_ms=command.until_ms,
                by_retention=command.by_retention,
                issued_by=command.issued_by,
            )
            changed = current.model_copy(update={"paused": order, "changes": ()})
        case "resume" if current.version and current.origin != "delete":
            changed = current.model_copy(update={"paused": None, "changes": ()})
        case "delete" if current.version:
            changed = _deleted(current)
        case _:
            raise InapplicableError(f"{command.kind} of {command.playbook} does not make a version")
    return next_version(current, changed, command, offset=offset, now_ms=now_ms)


def _imported(current: Playbook, command: Command, budget_tokens: int) -> Playbook:
    if len({entry.id for entry in command.entries}) < len(command.entries):
        raise InapplicableError("two entries of the import have one id")
    if command.holds == "components" and (reason := clash(command.entries)):
        raise InapplicableError(reason)
    if reason := oversize(command.entries, command.sections):
        raise InapplicableError(reason)
    fits = needed_tokens(command.entries, command.sections) <= budget_tokens
    changed = {"updated_version": current.version + 1}
    entries = tuple(entry.model_copy(update=changed) for entry in dated(command.entries, current))
    return current.model_copy(
        update={
            "entries": entries,
            "sections": command.sections or empty(current.name).sections,
            "again": (),
            "counters": command.counters,
            "holds": command.holds,
            "budget_tokens": 0 if fits else command.budget_tokens,
            "next_id": max([current.next_id, *(number_of(e.id) + 1 for e in entries)]),
            "changes": tuple(Change(kind="import", entry_id=e.id) for e in entries),
        }
    )


def _refuse_stale(current: Playbook, operations: Sequence[Operation], base: Playbook | None) -> None:
    """Raise InapplicableError if an entry in an edit differs from ``base``; None: nothing changed."""
    if base is None:
        return
    then, now = (
        {entry.id: (entry.section, entry.content) for entry in book.entries} for book in (base, current)
    )
    named = {entry_id for operation in operations for entry_id in operation.entry_ids}
    changed = sorted(entry_id for entry_id in named if then.get(entry_id) != now.get(entry_id))
    if changed:
        raise InapplicableError(
            f"{', '.join(changed)} changed since version {base.version}: the newest is {current.version}"
        )


def _edited(current: Playbook, command: Command, budget_tokens: int) -> Playbook:
    budget = budget_of(current, budget_tokens)
    draft, sections, entries = edited(current, command.operations, budget_tokens=budget)
    touched = tuple(entry for entry in entries if entry.updated_version == draft.version)
    theirs = {entry.id: activated(entry) for entry in touched}
    was = {entry.id: entry for entry in current.entries if entry.id in theirs}
    says = {entry_id: e.content for entry_id, e in was.items() if e.content == theirs[entry_id].content}
    # An unchanged text is no change, but a person's confirmation of it is one.
    done = (change for change in draft.changes if says.get(change.entry_id) != change.detail)
    kept = (
        entry_id
        for entry_id, entry in theirs.items()
        if entry_id in was and (not was[entry_id].is_active or _is_kept(was[entry_id], entry))
    )
    changes = (Change(kind="promote", entry_id=entry_id, detail="by hand") for entry_id in kept)
    return current.model_copy(
        update={
            "sections": sections,
            "entries": tuple(theirs.get(entry.id, entry) for entry in entries),
            "next_id": draft.next_id,
            "changes": (*done, *changes),
        }
    )


def _is_kept(before: Entry, after: Entry) -> bool:
    return after.by_hand and not before.by_hand and after.content == before.content


def _deleted(current: Playbook) -> Playbook:
    """Return the remaining bookkeeping, which keeps poison and echoes out if the name is used again."""
    bare = {"entries": (), "sections": empty(current.name).sections, "counters": True, "holds": "entries"}
    change = Change(kind="delete", detail=f"{len(current.entries)} entries")
    return current.model_copy(
        update={
            **bare,
            "again": (),
            "budget_tokens": 0,
            "branch": None,
            "paused": None,
            "retention_recent": (),
            "omitted_recent": (),
            "omitted_count": 0,
            "changes": (change,),
        }
    )


def after_rejection(
    current: Playbook,
    command: Command,
    *,
    candidate: Playbook,
    production: Playbook,
    behind: Mapping[str, tuple[str, ...]],
    between: Iterable[Playbook],
    budget_tokens: int,
    now_ms: int,
) -> Playbook:
    """Return the version without rejected entries of ``candidate``; see ``without_entries``."""
    changed = without_entries(
        current,
        candidate,
        production,
        behind,
        between=between,
        budget_tokens=budget_tokens,
    )
    if changed.holds == "components":
        changed = changed.model_copy(update={"sections": section_order(changed.sections, changed.entries)})
    return next_version(current, changed, command, offset=current.command_offset, now_ms=now_ms)


def after_fork(
    current: Playbook,
    update: Update,
    forked: Playbook,
    *,
    playbook: Playbook,
    budget_tokens: int,
    now_ms: int,
    recomputed: Recomputed | None = None,
) -> Playbook:
    """Return the first version of a branch, with the content of ``forked``, a version of its playbook.

    ``playbook`` is its newest version, whose revocations apply. ``recomputed`` is the content without revoked
    reflections.

    Raises
    ------
    InapplicableError
        If the branch is not one of that playbook.
    """
    plan, branch = update.plan, update.plan.branch
    if branch is None or forked.name != branch.of or not is_branch_of(plan.playbook, branch.of):
        raise InapplicableError(f"{plan.playbook} is no branch of {forked.name}")
    begun = with_revocations_of(current, playbook).model_copy(
        update={"branch": branch, "rejected": playbook.rejected}
    )
    content = _with_content_of(begun, forked, recomputed, budget_tokens, rejected_by=playbook)
    version = current.version + 1
    began = {"created_version": version, "updated_version": version}
    change = Change(kind="import", detail=f"version {forked.version} of {forked.name}")
    changed = content.model_copy(
        update={
            "entries": as_earlier(
                (entry.model_copy(update=began) for entry in content.entries), overtaken(content.entries)
            ),
            "method": forked.method,
            "next_id": max(content.next_id, forked.next_id),
            "changes": (change, *content.changes),
            "retired": forked.retired,
            "taught_by": forked.taught_by,
            "retention_recent": (),
            "omitted_recent": (),
            # The cost of a batch is known from the playbook; its past spend stays there.
            "spend": current.spend.model_copy(
                update={"tokens_each": forked.spend.tokens_each, "cost_each": forked.spend.cost_each}
            ),
            "consolidated_version": version if forked.consolidated_version else 0,
        }
    )
    batch = AppliedBatch(plan=plan, usage=update.result.usage)
    return next_version(current, changed, batch, offset=update.manifest_offset, now_ms=now_ms)


def after_promotion(label: Label | None, command: Command, offset: int, *, now_ms: int) -> Label:
    """Return the label that ``command`` moves, given its state before.

    Raises
    ------
    InapplicableError
        If the command names no possible label.
    """
    try:
        return Label(
            playbook=command.playbook,
            label=command.label,
            version=command.version,
            command_offset=offset,
            commands=remembered(label.commands if label else (), command.command_id),
            moved_at_ms=now_ms,
            issued_by=command.issued_by,
        )
    except ValidationError as error:
        raise InapplicableError(f"{command.label[:80]!r} cannot be a label") from error


# ---- revocations


def with_revocation(current: Playbook, command: Command) -> Playbook:
    """Return the playbook with a revocation's reflections and rules.

    A repeated rule replaces the earlier one, because it may select more by now.
    """
    new = evidence.rules_for(
        command.rules,
        command.reflection_ids,
        version=current.version + 1,
        retained_from=command.retained_from,
    )
    revoked = current.model_copy(
        update={
            "revoked": union(current.revoked, command.reflection_ids),
            "revocations": (*current.revocations, *new),
        }
    )
    if not any(map(is_batch_rule, command.rules)):
        return revoked
    # What is apart again is no growth: the same question would be asked, and judged, without end.
    return revoked.model_copy(update={"consolidated_version": current.version + 1})


def retained_from(playbook: Playbook) -> int:
    """Return the first reflection still retained for calls at the last revocation."""
    return max((revocation.retained_from for revocation in playbook.revocations), default=0)


def _recomputed(playbook: Playbook, recomputed: Recomputed | None, budget_tokens: int) -> Playbook:
    """Return the playbook with its recomputed content."""
    recomputed = recomputed or Recomputation(playbook, playbook).result(budget_tokens=budget_tokens)
    changed = {change.entry_id for change in recomputed.changes}
    entries = tuple(
        entry.model_copy(update={"updated_version": playbook.version + 1}) if entry.id in changed else entry
        for entry in recomputed.entries
    )
    return playbook.model_copy(
        update={
            "entries": entries,
            "next_id": max(playbook.next_id, recomputed.next_id),
            "changes": recomputed.changes,
            "again": recomputed.again,
            "sections": playbook.sections if playbook.holds == "entries" else section_order((), entries),
        }
    )


def _without_waiting(changed: Playbook, current: Playbook, command: Command) -> Playbook:
    """Return a playbook without the proposed entries that a rejection names by their ids of now."""
    named = command.entry_ids if current.name == command.playbook else ()  # on a branch they are others'
    texts = {entry.content for entry in current.entries if entry.id in named}
    out = {entry.id: entry for entry in changed.entries if entry.content in texts and not entry.is_active}
    expired = (Change(kind="expire", entry_id=one, detail=e.content[:300]) for one, e in out.items())
    entries = tuple(entry for entry in changed.entries if entry.id not in out)
    return changed.model_copy(update={"entries": entries, "changes": (*changed.changes, *expired)})


def _begun_anew(changed: Playbook, current: Playbook) -> Playbook:
    """Return a playbook in which the words that agents are shown again are new in the next version.

    What waits keeps its version: who has said its rival since then still counts.
    """
    pairs = zip(changed.entries, dated(changed.entries, current), strict=True)
    return changed.model_copy(
        update={"entries": tuple(again if entry.is_active else entry for entry, again in pairs)}
    )


def _with_content_of(
    current: Playbook,
    target: Playbook,
    recomputed: Recomputed | None,
    budget_tokens: int,
    *,
    rejected_by: Playbook,
) -> Playbook:
    """Return a playbook with the content of another version, without revoked reflections and later rejections."""
    content = current.model_copy(update={name: getattr(target, name) for name in CONTENT})
    return without_rejected(_recomputed(content, recomputed, budget_tokens), rejected_by)
