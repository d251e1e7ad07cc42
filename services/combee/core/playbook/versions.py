"""The next version of a playbook: from an update or from a command; pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from pydantic import ValidationError

from combee.core.fates import Effect
from combee.core.formats.render import section_order
from combee.core.playbook import evidence, probation, retention
from combee.core.playbook.apply import applied, holds_after
from combee.core.playbook.branching import Adoption, barred_by, taken_over
from combee.core.playbook.cleaning import clean_command
from combee.core.playbook.components import clash
from combee.core.playbook.echo import retired
from combee.core.playbook.operations import union
from combee.core.playbook.recomputing import Recomputation, Recomputed
from combee.core.playbook.rejecting import without_entries, without_rejected
from combee.core.playbook.screening import barred_sources, by_source, taught
from combee.core.playbook.sections import number_of
from combee.core.playbook.spend import UNCAPPED, SpendPolicy, after_batch
from combee.core.sources import names_of
from combee_schemas.base import is_branch_of
from combee_schemas.codec import CodecError, encode
from combee_schemas.command import Command
from combee_schemas.plan import Plan, Probation
from combee_schemas.playbook import (
    ACE_SECTIONS,
    EVIDENCE_KEPT,
    AppliedBatch,
    Asked,
    Change,
    ChangeKind,
    Entry,
    Label,
    Playbook,
)
from combee_schemas.scan import Operation, Seen, Update

T = TypeVar("T")

COMMANDS_REMEMBERED = 50
WITHOUT_EFFECT: frozenset[ChangeKind] = frozenset({"dropped", "superseded", "echo", "duplicate", "conflict"})
"""Changes that no entry came, left or was reworded by."""
COUNTING = frozenset({"new", "known"})
CONTENT = ("entries", "sections", "counters", "holds", "counted_offset", "again")
"""What a version says, which reflections its tags are from, and which it lacks; the rest is bookkeeping."""


class InapplicableError(ValueError):
    """An update or a command that cannot be applied to the playbook as it is; the message says why."""


@lru_cache(1_024)
def empty(name: str) -> Playbook:
    """Return version 0, which every playbook starts from and nobody writes: of each one object, as of any version."""
    return Playbook(name=name, version=0, sections=ACE_SECTIONS)


def after_update(
    current: Playbook,
    update: Update,
    *,
    budget_tokens: int,
    now_ms: int,
    spending: SpendPolicy = UNCAPPED,
) -> Playbook:
    """Return the version that ``update`` makes of ``current``; it rises by one even if nothing changes.

    ``budget_tokens`` is the token budget where the batch's manifest does not say it.

    Raises
    ------
    InapplicableError
        If it is of a batch without reflections.
    """
    plan, result = update.plan, update.result
    if plan.reflections < 1 and plan.reason != "consolidate":
        raise InapplicableError(f"{plan.batch_id} is a batch of {plan.reflections} reflections")
    draft, sections, entries = applied(
        current,
        result.operations,
        result.seen,
        holds=plan.settings.holds,
        budget_tokens=plan.settings.playbook_tokens or budget_tokens,
        revoked=evidence.barred(current, update),
        echoes=result.echoes,
        known=result.known,
        policy=_policy(plan),
        settings=plan.settings,
    )
    names = names_of(result.seen, plan.settings.sources)
    holds = holds_after(current, plan.settings.holds)
    audit = retention.audit(result, len(plan.widths), draft.landed())
    batch = AppliedBatch(
        plan=plan,
        degraded=result.status in {"failed", "merged"} or not all(s.ok for s in result.seen),
        retention=retention.shares(audit, len(result.seen)),
        audit=audit,
        carried=result.carried,
        sources=by_source(result.seen, names),
        usage=result.usage,
    )
    last_kept = batch.retention[-1] if batch.retention else None
    return current.model_copy(
        update={
            "version": current.version + 1,
            "sections": sections,
            "entries": evidence.kept(entries),
            "taught_by": taught(current.taught_by, result.seen, names, barred_sources(current)),
            "next_id": draft.next_id,
            "origin": "batch",
            "changes": tuple(draft.changes),
            "retired": retired(current, entries),
            "method": plan.settings.method,
            "holds": holds,
            "counters": current.counters and holds == "entries",
            "batch": batch,
            "adopted": None,
            "batch_sequence": plan.sequence,
            "through_offset": max(current.through_offset, plan.through_offset),
            "manifest_offset": max(current.manifest_offset, update.manifest_offset),
            "retention_recent": retention.recent(current.retention_recent, last_kept),
            **retention.lost(current, audit),
            "spend": after_batch(
                current.spend,
                (result.usage, plan.reflect_usage),
                reflections=plan.reflections,
                now_ms=now_ms,
                policy=spending,
            ),
            "commands": remembered(current.commands, plan.command_id)
            if plan.command_id
            else current.commands,
            "consolidated_version": plan.base_version
            if plan.reason == "consolidate"
            else current.consolidated_version,
            "again": _unasked(current, update),
            "issued_by": "",
            "created_at_ms": now_ms,
        }
    )


def _unasked(current: Playbook, update: Update) -> tuple[Asked, ...]:
    """Return what is still to be asked about again after a batch."""
    if update.plan.reason != "revoke":
        return current.again
    seen = {reflection.offset for reflection in update.result.seen}
    return tuple(asked for asked in current.again if asked.offset not in seen)


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
    """Return the version with which a branch begins: what ``forked``, a version of its playbook, says.

    ``playbook`` is the newest one: what is revoked there does not come along. ``recomputed`` is what that leaves.

    Raises
    ------
    InapplicableError
        If it is no branch of that playbook.
    """
    plan, branch = update.plan, update.plan.branch
    if branch is None or forked.name != branch.of or not is_branch_of(plan.playbook, branch.of):
        raise InapplicableError(f"{plan.playbook} is no branch of {forked.name}")
    begun = barred_by(current, playbook).model_copy(update={"branch": branch, "rejected": playbook.rejected})
    content = without_rejected(_without(_saying(begun, forked), recomputed, budget_tokens), playbook)
    version = current.version + 1
    began = {"created_version": version, "updated_version": version}
    change = Change(kind="import", detail=f"version {forked.version} of {forked.name}")
    return content.model_copy(
        update={
            "version": version,
            "entries": tuple(entry.model_copy(update=began) for entry in evidence.kept(content.entries)),
            "method": forked.method,
            "next_id": max(content.next_id, forked.next_id),
            "origin": "batch",
            "changes": (change, *content.changes),
            "retired": forked.retired,
            "taught_by": forked.taught_by,
            "batch": AppliedBatch(plan=plan, usage=update.result.usage),
            "batch_sequence": plan.sequence,
            "through_offset": max(current.through_offset, plan.through_offset),
            "manifest_offset": max(current.manifest_offset, update.manifest_offset),
            "retention_recent": (),
            "lost_recent": (),
            # What a batch takes is known; what was spent is its playbook's.
            "spend": current.spend.model_copy(
                update={"tokens_each": forked.spend.tokens_each, "cost_each": forked.spend.cost_each}
            ),
            "commands": remembered(current.commands, plan.command_id),
            "adopted": None,
            "consolidated_version": version if forked.consolidated_version else 0,
            "issued_by": "",
            "created_at_ms": now_ms,
        }
    )


def _policy(plan: Plan) -> Probation | None:
    """Return the probation of a batch; a consolidation brings no reflections, so no entry waits longer for it."""
    return None if plan.reason == "consolidate" else plan.settings.probation or probation.OFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Became:
    """The effect of one reflection on a version, and why it has none where it has none."""

    effect: Effect
    why: str = ""


def became(before: Playbook, update: Update, after: Playbook) -> dict[str, Became]:
    """Return the effect of each reflection of ``update`` on ``after``, the version it made.

    Dead letters are left out.
    """
    draft, _, _ = applied(
        before,
        update.result.operations,
        update.result.seen,
        holds=update.plan.settings.holds,
        budget_tokens=evidence.NO_BUDGET,
        revoked=evidence.barred(before, update),
        echoes=update.result.echoes,
        known=update.result.known,
        settings=update.plan.settings,
    )
    applicable = draft.landed()
    for change in after.changes:
        if change.kind in {"evict", "expire"}:
            draft.landing.evict(change.entry_id)
    landed, levels = draft.landed(), len(update.plan.widths)
    effects: dict[str, Became] = {}
    for reflection in update.result.seen:
        if reflection.ok:
            effect = retention.effect(reflection, levels, landed)
            why = "" if effect in COUNTING else _why_nothing(reflection, levels, applicable)
            effects[reflection.reflection_id] = Became(effect=effect, why=why)
    return effects


def _why_nothing(reflection: Seen, levels: int, applicable: retention.Landed) -> str:
    if retention.effect(reflection, levels, applicable) in COUNTING:
        return "evicted at once: the playbook's token budget is used up"
    if reflection.survived >= levels:
        return "its proposal lost to one of more sources or with newer evidence, or no longer applied"
    if reflection.dropped:
        return f"the model dropped it by name (level {reflection.survived})"
    if reflection.survived == 0:
        return "the model proposed nothing for it"
    return f"left out when proposals were combined (level {reflection.survived})"


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

    ``target`` is a rollback's old version, or the one that an edit was made on if that is not ``current``.
    ``recomputed`` is what a revocation leaves of ``current``, and a rollback of ``target``, or an adoption of its, if
    something is revoked; None: nothing is known of what made it.

    Raises
    ------
    InapplicableError
        If the command does not make a version or lacks what it needs.
    """
    current = current.model_copy(update={"adopted": None})
    command = clean_command(command)
    match command.kind:
        case "import":
            changed = _imported(current, command)
        case "edit":
            _refuse_stale(current, command.operations, target)
            changed = _edited(current, command, budget_tokens)
        case "revoke":
            changed = _without(barring(current, command), recomputed, budget_tokens)
        case "rollback" if target is not None:
            changed = _without(_saying(current, target), recomputed, budget_tokens)
            changed = without_rejected(changed, current)
            change = Change(kind="rollback", detail=evidence.RESTORED.format(version=target.version))
            changed = changed.model_copy(update={"changes": (change, *changed.changes)})
        case "adopt" if adoption is not None:
            if reason := adoption.refusal():
                raise InapplicableError(reason)
            content = _saying(adopting(current, adoption), adoption.target)
            content = without_rejected(_without(content, recomputed, budget_tokens), current)
            changed = taken_over(adoption, current, content)
        case "delete" if current.version:
            changed = _deleted(current)
        case _:
            raise InapplicableError(f"{command.kind} of {command.playbook} does not make a version")
    return _commanded(current, changed, command, offset, now_ms=now_ms)


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
    """Return the version without what a person rejected of entries of ``candidate``; see ``without_entries``."""
    current = current.model_copy(update={"adopted": None})
    changed = without_entries(
        current, candidate, production, behind, between=between, budget_tokens=budget_tokens
    )
    if changed.holds == "components":
        changed = changed.model_copy(update={"sections": section_order(changed.sections, changed.entries)})
    return _commanded(current, changed, command, current.command_offset, now_ms=now_ms)


def _commanded(
    current: Playbook, changed: Playbook, command: Command, offset: int, *, now_ms: int
) -> Playbook:
    """Return what a command made of ``current`` as its next version."""
    return changed.model_copy(
        update={
            "version": current.version + 1,
            "entries": evidence.kept(changed.entries),
            "origin": command.kind,
            "batch": None,
            "retired": retired(current, changed.entries),
            "command_offset": offset,
            "commands": remembered(current.commands, command.command_id),
            "issued_by": command.issued_by,
            "created_at_ms": now_ms,
        }
    )


def adopting(current: Playbook, adoption: Adoption) -> Playbook:
    """Return a playbook with what is revoked on the branch, too, and whose next ids are free on both."""
    next_id = max(current.next_id, adoption.line.next_id)
    return barred_by(current, adoption.line).model_copy(update={"next_id": next_id})


def _saying(current: Playbook, target: Playbook) -> Playbook:
    """Return a playbook with the content of another version."""
    return current.model_copy(update={name: getattr(target, name) for name in CONTENT} | {"changes": ()})


def after_promotion(label: Label | None, command: Command, offset: int, *, now_ms: int) -> Label:
    """Return the label that ``command`` moves, given what it was.

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


def fitted(version: Playbook) -> Playbook:
    """Return the version so that it fits a record: the first of ever smaller ones that does.

    Entries, counters and evidence counts stay; the full lineage is in ``updates`` anyway.
    """
    smaller = version
    for smaller in _ever_smaller(version):
        try:
            encode(smaller)
        except CodecError:
            continue
        break
    return smaller


def _ever_smaller(version: Playbook) -> Iterator[Playbook]:
    """Yield a version, then ever smaller ones.

    Details of changes go first, then changes without an effect, evidence and what retired, the other changes, headers
    without entries, and rejections; the names that entries rest on go last.
    """
    yield version
    bare = tuple(change.model_copy(update={"detail": ""}) for change in version.changes)
    yield (version := version.model_copy(update={"changes": bare}))
    effects = tuple(change for change in bare if change.kind not in WITHOUT_EFFECT)
    yield (version := version.model_copy(update={"changes": effects}))
    for kept in (EVIDENCE_KEPT, 5, 1, 0):
        entries = tuple(
            entry.model_copy(update={"evidence": _last(entry.evidence, kept)}) for entry in version.entries
        )
        retired_left = _last(version.retired, kept)
        yield (version := version.model_copy(update={"entries": entries, "retired": retired_left}))
    while version.changes:
        left = _last(version.changes, len(version.changes) // 2)
        yield (version := version.model_copy(update={"changes": left}))
    yield (version := version.model_copy(update={"sections": ()}))
    while version.rejected:
        barred = _last(version.rejected, len(version.rejected) // 2)
        yield (version := version.model_copy(update={"rejected": barred}))
    for kept in (1, 0):
        entries = tuple(
            entry.model_copy(
                update={"support": _last(entry.support, kept), "sources": _last(entry.sources, kept)}
            )
            for entry in version.entries
        )
        yield (version := version.model_copy(update={"entries": entries}))


def _last(items: tuple[T, ...], count: int) -> tuple[T, ...]:
    return items[-count:] if count else ()


def remembered(commands: tuple[str, ...], command_id: str) -> tuple[str, ...]:
    """Return the ids of the last commands executed, this one included."""
    return (*commands, command_id)[-COMMANDS_REMEMBERED:]


def made_by(playbook: Playbook) -> str:
    """Return what made a version, in words: a batch, a consolidation, a fork, or what somebody did."""
    plan = playbook.batch.plan if playbook.batch else None
    if plan is not None and plan.branch is not None:
        return "fork"
    if plan is not None and plan.reason == "revoke":
        return "asking again"
    if plan is None or plan.reason != "consolidate":
        return playbook.origin
    return "automatic consolidation" if plan.automatic else "consolidation"


def is_executed(current: Playbook | Label, command: Command, offset: int) -> bool:
    """Return whether a command had its effect already: a repeat, by place or by id."""
    return offset <= current.command_offset or command.command_id in current.commands


def _imported(current: Playbook, command: Command) -> Playbook:
    if len({entry.id for entry in command.entries}) < len(command.entries):
        raise InapplicableError("two entries of the import have one id")
    if command.holds == "components" and (reason := clash(command.entries)):
        raise InapplicableError(reason)
    version = current.version + 1
    since = {(entry.id, entry.content): entry.created_version for entry in current.entries}
    entries = tuple(
        entry.model_copy(
            update={
                "created_version": since.get((entry.id, entry.content), version),
                "updated_version": version,
            }
        )
        for entry in command.entries
    )
    return current.model_copy(
        update={
            "entries": entries,
            "sections": command.sections or empty(current.name).sections,
            "again": (),
            "counters": command.counters,
            "holds": command.holds,
            "next_id": max([current.next_id, *(number_of(e.id) + 1 for e in entries)]),
            "changes": tuple(Change(kind="import", entry_id=e.id) for e in entries),
        }
    )


def _deleted(current: Playbook) -> Playbook:
    """Return what remains: the bookkeeping, and what keeps poison and echoes out if the name lives again."""
    bare = {"entries": (), "sections": empty(current.name).sections, "counters": True, "holds": "entries"}
    change = Change(kind="delete", detail=f"{len(current.entries)} entries")
    return current.model_copy(
        update={
            **bare,
            "again": (),
            "branch": None,
            "retention_recent": (),
            "lost_recent": (),
            "lost_count": 0,
            "changes": (change,),
        }
    )


def _refuse_stale(current: Playbook, operations: Sequence[Operation], base: Playbook | None) -> None:
    """Raise InapplicableError if an entry that an edit names is not as it was in ``base``; None: nothing changed."""
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
    draft, sections, entries = applied(
        current,
        command.operations,
        (),
        holds=current.holds,
        budget_tokens=budget_tokens,
        revoked=current.revoked,
    )
    touched = tuple(entry for entry in entries if entry.updated_version == draft.version)
    theirs = {entry.id: probation.activated(entry) for entry in touched}
    was = {entry.id: entry for entry in current.entries if entry.id in theirs}
    says = {entry_id: e.content for entry_id, e in was.items() if e.content == theirs[entry_id].content}
    # That it says what it said is no change; that a person stands behind it is one.
    done = (change for change in draft.changes if says.get(change.entry_id) != change.detail)
    kept = (
        entry_id
        for entry_id, entry in theirs.items()
        if entry_id in was and (not probation.is_active(was[entry_id]) or _is_kept(was[entry_id], entry))
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


def barring(current: Playbook, command: Command) -> Playbook:
    """Return the playbook with what a revocation takes back and its rules.

    A rule that was given before is given anew: by now it may mean more.
    """
    new = evidence.rules_for(
        command.rules,
        command.reflection_ids,
        version=current.version + 1,
        retained_from=command.retained_from,
    )
    return current.model_copy(
        update={
            "revoked": union(current.revoked, command.reflection_ids),
            "revocations": (*current.revocations, *new),
            "changes": (),
        }
    )


def retained_from(playbook: Playbook) -> int:
    """Return the first reflection that calls could read again when something was last revoked."""
    return max((revocation.retained_from for revocation in playbook.revocations), default=0)


def _without(playbook: Playbook, recomputed: Recomputed | None, budget_tokens: int) -> Playbook:
    """Return the playbook as it is recomputed."""
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
