"""The next version of a playbook; pure, so that history replayed gives the same snapshots.

``after_update`` applies a batch to a version:

1. ``trust`` decides which operations count; they are applied to a draft (``draft``).
2. ``trust`` decides which entries of the draft agents are shown.
3. Entries beyond the token budget are evicted, and the result is audited.
4. ``next_version`` adds the fields that every version has.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from combee.core.names.sources import names_of
from combee.core.playbook import retention
from combee.core.playbook.budget import budget_of
from combee.core.playbook.draft import NO_BUDGET, NO_IDS, Draft, draft_of, finish
from combee.core.playbook.shown import counts
from combee.core.playbook.spend import UNCAPPED, SpendPolicy, after_batch
from combee.core.playbook.trust import (
    EVERYTHING,
    PERSON,
    Screen,
    barred,
    by_source,
    names_counted,
    parts_if_several,
    taught,
    uncounted_sources,
    with_sources,
    without_claims,
)
from combee_schemas.base import Holds, Value
from combee_schemas.codec import CodecError, encode
from combee_schemas.command import Command
from combee_schemas.playbook import (
    ACE_SECTIONS,
    EVIDENCE_KEPT,
    RETIRED_KEPT,
    AppliedBatch,
    Asked,
    Audit,
    ChangeKind,
    Entry,
    Origin,
    Playbook,
    Retired,
)
from combee_schemas.scan import NodeResult, Operation, Update

T = TypeVar("T")
Applied = tuple[Draft, tuple[str, ...], tuple[Entry, ...]]
"""The draft with its changes, and the sections and entries of the next version."""

COMMANDS_REMEMBERED = 50
PART_BYTES = 256 << 10
"""Maximum bytes of the revoked ids in one command or one version, which leaves room for its other fields."""
LONG_ID = 100
"""Bytes of the longest ids of reflections that never cost other entries the names of their sources."""
WITHOUT_EFFECT: frozenset[ChangeKind] = frozenset({"dropped", "superseded", "echo", "duplicate", "conflict"})
"""Kinds of changes that neither add, remove nor reword an entry."""


class InapplicableError(ValueError):
    """An update or a command that cannot be applied to the playbook; the message says why."""


@lru_cache(1_024)
def empty(name: str) -> Playbook:
    """Return version 0, from which every playbook starts. It is never written. One object per name is shared."""
    return Playbook(name=name, version=0, sections=ACE_SECTIONS)


# ---- batches


def after_update(
    current: Playbook,
    update: Update,
    *,
    budget_tokens: int,
    now_ms: int,
    spending: SpendPolicy = UNCAPPED,
) -> Playbook:
    """Return the version that ``update`` makes of ``current``; the number rises even if nothing changes.

    ``budget_tokens`` is the configured token budget if the batch's manifest does not state it.

    Raises
    ------
    InapplicableError
        If its batch has no reflections.
    """
    plan, result, settings = update.plan, update.result, update.plan.settings
    if plan.reflections < 1 and plan.reason != "consolidate":
        raise InapplicableError(f"{plan.batch_id} is a batch of {plan.reflections} reflections")
    current = without_claims(current, settings.trust)
    holds, gone = holds_after(current, settings.holds), barred(current, update)
    draft, sections, entries = applied(current, update, budget_tokens=budget_tokens)
    names = names_of(result.seen, names_counted(settings))
    taught_by = taught(current.taught_by, result.seen, names, uncounted_sources(current, settings))
    sources = by_source(result.seen, names)
    audit = retention.audit(result, draft.landed())
    answered = {reflection.offset for reflection in result.seen} if plan.reason == "revoke" else ()
    again = [asked for asked in current.again if asked.offset not in answered]
    unheard = draft.unheard.union(*draft.kept_back().values())
    if _is_outdated(current, update, holds):
        draft.note("dropped", "", "what it rewrote has changed: its reflections are asked about again")
        unheard = {one.reflection_id for one in result.seen if one.ok}.difference(gone)
    # A batch may have read what was revoked meanwhile, or what has no room.
    again += [
        Asked(offset=one.offset, manifest_offset=update.manifest_offset)
        for one in result.seen
        if one.reflection_id in unheard
    ]
    changed = current.model_copy(
        update={
            **retention.recent_shares(current, audit),
            "sections": sections,
            "entries": entries,
            "next_id": draft.next_id,
            "changes": tuple(draft.changes),
            "method": settings.method,
            "trust": settings.trust,
            "holds": holds,
            "counters": current.counters and holds == "entries",
            "spend": after_batch(
                current.spend,
                (result.usage, plan.reflect_usage),
                reflections=plan.reflections,
                now_ms=now_ms,
                policy=spending,
            ),
            "consolidated_version": plan.base_version
            if plan.reason == "consolidate"
            else current.consolidated_version,
            "again": tuple(again),
            "taught_by": taught_by,
        }
    )
    batch = AppliedBatch(
        plan=plan,
        degraded=result.status in {"failed", "merged"} or not all(s.ok for s in result.seen),
        audit=audit,
        sources=sources,
        usage=result.usage,
    )
    return next_version(current, changed, batch, offset=update.manifest_offset, now_ms=now_ms)


def applied(
    current: Playbook,
    update: Update,
    *,
    budget_tokens: int,
    holds: Holds | None = None,
    gone: Sequence[str] | None = None,
    ids: Mapping[str, str] = NO_IDS,
    free_from: int = 0,
) -> Applied:
    """Return what a batch makes of ``current``, with all evidence.

    ``budget_tokens``: if its manifest does not state the token budget. The others are for applying it again, to other
    entries. ``holds``: the kind of content after the batch; None: it follows from ``current``. ``gone``: reflections
    that do not count; None: those that ``current`` bars. ``ids``: ids of added entries by their content.
    ``free_from``: the first free id number when the batch was first applied; 0: that of ``current``.
    """
    settings = update.plan.settings
    current = without_claims(current, settings.trust)
    holds = holds or holds_after(current, settings.holds)
    budget = budget_of(current, settings.playbook_tokens or budget_tokens)
    screen, draft = _screened(
        current, update, holds=holds, gone=gone, budget_tokens=budget, ids=ids, free_from=free_from
    )
    supported = draft.supported()
    named = with_sources(draft.entries.values(), update, draft.landing.by_entry())
    review = screen.reviewed(current, named, supported, budget)
    draft.settle((*named, *review.entries), review.changes)
    for operation in update.result.operations if holds != settings.holds else ():
        draft.note(
            "dropped", "", f"{operation.kind}: made for {settings.holds}, and the playbook holds {holds}"
        )
    return draft, *finish(current, draft, budget, screen.room, holds)


def holds_after(base: Playbook, holds: Holds) -> Holds:
    """Return the kind of content after an update by a method for ``holds``; existing content keeps its kind."""
    return base.holds if base.entries else holds


def misfit(playbook: Playbook, holds: Holds, method: str) -> str | None:
    """Return why a method for content of kind ``holds`` may not update a playbook, and the remedy; None: it may."""
    if not playbook.entries or playbook.holds == holds:
        return None
    expected = "gepa" if playbook.holds == "components" else "ace"
    learned = playbook.method if playbook.batch_sequence else expected
    return (
        f"{playbook.name} holds {playbook.holds}, and the method {method} would turn them into {holds}: nothing is"
        f" learned until COMBEE_METHOD={learned} again; or let {method} learn a playbook of another name"
    )


def edited(base: Playbook, operations: Sequence[Operation], *, budget_tokens: int) -> Applied:
    """Apply a person's operations. All of them count, and agents are shown the result at once."""
    result, screen = NodeResult(status="ok", operations=tuple(operations)), EVERYTHING
    admitted = screen.admitted(base, result.operations, ())
    draft = draft_of(
        base,
        result,
        screen,
        admitted,
        holds=base.holds,
        gone=base.revoked,
        budget_tokens=budget_tokens,
        by_hand=base.holds == "entries",
    )
    return draft, *finish(base, draft, budget_tokens, parts_if_several(base), base.holds)


def drafted(base: Playbook, update: Update) -> Draft:
    """Return the draft of a batch's result on ``base``, before ``trust`` reviews it and entries are evicted."""
    settings = update.plan.settings
    base = without_claims(base, settings.trust)
    holds = holds_after(base, settings.holds)
    return _screened(base, update, holds=holds, budget_tokens=NO_BUDGET)[1]


def _screened(
    base: Playbook,
    update: Update,
    *,
    holds: Holds,
    gone: Sequence[str] | None = None,
    budget_tokens: int,
    ids: Mapping[str, str] = NO_IDS,
    free_from: int = 0,
) -> tuple[Screen, Draft]:
    """Return a batch's screen, and the draft of what it admits without the operations for another kind of content."""
    result, gone = update.result, barred(base, update) if gone is None else gone
    screen = Screen.of(base, update, gone, holds)
    is_fit = holds == update.plan.settings.holds and not _is_outdated(base, update, holds)
    fitting = result.operations if is_fit else ()
    draft = draft_of(
        base,
        result,
        screen,
        screen.admitted(base, fitting, result.seen),
        holds=holds,
        gone=gone,
        budget_tokens=budget_tokens,
        ids=ids,
        free_from=free_from if holds == "entries" else 0,
    )
    return screen, draft


def _is_outdated(base: Playbook, update: Update, holds: Holds) -> bool:
    """Return whether a batch wrote a whole text of a version that a person has changed meanwhile.

    It would bring back what was revoked, rejected, rolled back or edited.
    """
    return holds == "components" and update.plan.base_version != base.version


# ---- the bookkeeping of every version


def next_version(
    current: Playbook, changed: Playbook, made_by: AppliedBatch | Command, *, offset: int, now_ms: int
) -> Playbook:
    """Return the version after ``current``: ``changed`` with a version number, its origin, and further bookkeeping.

    ``changed`` is ``current`` with other content. ``offset`` is the place of the command, or of the batch's manifest.
    """
    command_id = made_by.command_id if isinstance(made_by, Command) else made_by.plan.command_id
    update = {
        "version": current.version + 1,
        "entries": _kept(changed.entries),
        "retired": _retired(changed.retired, current.entries, changed.entries),
        "adopted": None,
        "rolled_back_to": 0,
        "commands": remembered(current.commands, command_id) if command_id else current.commands,
        "created_at_ms": now_ms,
    }
    if isinstance(made_by, Command):
        update |= {
            "origin": made_by.kind,
            "batch": None,
            "command_offset": offset,
            "issued_by": made_by.issued_by,
        }
        if made_by.kind == "adopt":
            update["adopted"] = changed.adopted
        if made_by.kind == "rollback":
            update["rolled_back_to"] = made_by.version
    else:
        # A branch that is begun anew under its old name has not read what that had read.
        before = current.through_offset if made_by.plan.branch is None else -1
        update |= {
            "origin": "batch",
            "batch": made_by,
            "batch_sequence": made_by.plan.sequence,
            "through_offset": max(before, made_by.plan.through_offset),
            "manifest_offset": max(current.manifest_offset, offset),
            "issued_by": "",
        }
    return changed.model_copy(update=update)


def remembered(commands: tuple[str, ...], command_id: str) -> tuple[str, ...]:
    """Return the ids of the last executed commands, this one included."""
    return (*commands, command_id)[-COMMANDS_REMEMBERED:]


def _kept(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return entries as a snapshot keeps them, with their last evidence ids."""
    return tuple(
        entry.model_copy(update={"evidence": entry.evidence[-EVIDENCE_KEPT:]})
        if len(entry.evidence) > EVIDENCE_KEPT
        else entry
        for entry in entries
    )


def _retired(
    earlier: Iterable[Retired], before: Iterable[Entry], entries: Iterable[Entry]
) -> tuple[Retired, ...]:
    """Return the last entries that left between ``before`` and ``entries``; ``earlier``: those that left before.

    Every kind of removal counts: removed, merged, evicted, revoked, rolled back or replaced by an import. Entries
    that are in the playbook again, after a rollback for example, are not included; nor are those that agents were
    never shown.
    """
    live = {entry.id for entry in entries}
    still = (entry for entry in earlier if entry.entry_id not in live)
    left = (entry for entry in before if entry.id not in live and entry.is_active)
    now = (Retired(entry_id=entry.id, content=entry.content, since=entry.created_version) for entry in left)
    return (*still, *now)[-RETIRED_KEPT:]


# ---- size of a record


def parted(ids: Iterable[str]) -> list[tuple[str, ...]]:
    """Return ids in parts that fit a command, and a version that names them: at least one part."""
    parts, size = [list[str]()], 0
    for named in ids:
        size += len(named.encode())
        if size > PART_BYTES:
            parts.append([])
            size = len(named.encode())
        parts[-1].append(named)
    return [tuple(part) for part in parts]


def naming_news(version: Playbook, before: Collection[str]) -> list[Playbook]:
    """Return a version whose ``revoked`` names the reflections that it revokes itself, without those in ``before``.

    If the ids are too many for one version, further versions with the same entries follow and name the rest.
    """
    known = frozenset(before)
    news, *more = parted(reflection_id for reflection_id in version.revoked if reflection_id not in known)
    named = [version.model_copy(update={"revoked": news})]
    for number, part in enumerate(more, version.version + 1):
        rules = (
            rule.model_copy(update={"version": number})
            for rule in version.revocations
            if rule.version == version.version
        )
        update = {
            "version": number,
            "origin": "revoke",
            "batch": None,
            "adopted": None,
            "rolled_back_to": 0,
            "changes": (),
            "revoked": part,
            "revocations": (*named[-1].revocations, *rules),
        }
        named.append(named[-1].model_copy(update=update))
    return named


def fitted(version: Playbook) -> Playbook:
    """Return the version shortened until it fits a record.

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

    They leave out, in this order: details of changes; changes without an effect; evidence and retired entries; most
    links of entries that wait, and long ids of reflections that support them; the other changes; section headers
    without entries; evidence of rejected lessons; names of the sources that an entry helped or harmed; ids of
    reflections that support what waits, and names of the sources that support what agents are shown; names of those
    that support what waits, which would wait for ever without them.
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
    entries = tuple(
        entry.model_copy(
            update={
                "replaces": entry.replaces[:PERSON],
                "rivals": entry.rivals[:PERSON],
                "support": tuple(one for one in entry.support if len(one.encode()) <= LONG_ID),
            }
        )
        for entry in version.entries
    )
    yield (version := version.model_copy(update={"entries": entries}))
    while version.changes:
        left = _last(version.changes, len(version.changes) // 2)
        yield (version := version.model_copy(update={"changes": left}))
    yield (version := version.model_copy(update={"sections": ()}))
    for kept in (5, 1, 0):
        barred = tuple(
            rejected.model_copy(update={"evidence": _last(rejected.evidence, kept)})
            for rejected in version.rejected
        )
        yield (version := version.model_copy(update={"rejected": barred}))
    entries = tuple(entry.model_copy(update={"harmed": (), "helped": ()}) for entry in version.entries)
    yield (version := version.model_copy(update={"entries": entries}))
    # Never one name: a source that repeats all lessons would then seem to be the only one behind each of them.
    support, names = ("support",), ("sources", "recognised")
    for fields, waits, kept in (
        (support, True, PERSON),
        (names, False, PERSON),
        (support, True, 0),
        (names, False, 0),
        (names, True, PERSON),
        (names, True, 0),
    ):
        entries = tuple(
            entry.model_copy(update={name: _last(getattr(entry, name), kept) for name in fields})
            if entry.is_active is not waits
            else entry
            for entry in version.entries
        )
        yield (version := version.model_copy(update={"entries": entries}))


def _last(items: tuple[T, ...], count: int) -> tuple[T, ...]:
    return items[-count:] if count else ()


# ---- a version in words and numbers


def made_by(playbook: Playbook) -> str:
    """Return the origin of a version in words: a batch, a consolidation, a fork, or a person's command."""
    plan = playbook.batch.plan if playbook.batch else None
    if plan is not None and plan.branch is not None:
        return "fork"
    if plan is not None and plan.reason == "revoke":
        return "asking again"
    if plan is None or plan.reason != "consolidate":
        return playbook.origin
    return "automatic consolidation" if plan.automatic else "consolidation"


def origin_text(playbook: Playbook) -> str:
    """Return the origin of a version with its batch's number, such as ``batch 3`` or ``consolidation, batch 4``."""
    origin = made_by(playbook)
    if playbook.origin != "batch":
        return origin
    number = f"batch {playbook.batch_sequence}"
    return number if origin == "batch" else f"{origin}, {number}"


class VersionSummary(Value):
    """One version without its entries: its origin, its changes, and its batch's results."""

    version: int
    origin: Origin
    issued_by: str
    batch_sequence: int | None
    batch_id: str
    base_version: int
    """The version that its batch's calls saw; for a command, the version before."""
    staleness: int
    reflections: int
    sources: dict[str, int]
    model_calls: int
    retention: float | None
    audit: Audit | None
    degraded: bool
    closed_at_ms: int
    seconds: float | None
    """Seconds from the batch's closing to the version; None without a batch."""
    entries: int
    proposed: int
    changes: dict[str, int]
    """Number of changes by kind."""
    created_at_ms: int


def version_summary(playbook: Playbook) -> VersionSummary:
    """Return the summary of a version."""
    batch = playbook.batch
    plan = batch.plan if batch else None
    is_timed = plan is not None and plan.closed_at_ms
    return VersionSummary(
        version=playbook.version,
        origin=playbook.origin,
        issued_by=playbook.issued_by,
        batch_sequence=plan.sequence if plan else None,
        batch_id=plan.batch_id if plan else "",
        base_version=plan.base_version if plan else playbook.version - 1,
        staleness=plan.staleness if plan else 0,
        reflections=playbook.reflections,
        sources=dict(batch.sources) if batch else {},
        model_calls=playbook.usage.calls,
        retention=retention.shares(playbook.audit)["retention"],
        audit=playbook.audit,
        degraded=batch.degraded if batch else False,
        closed_at_ms=plan.closed_at_ms if plan else 0,
        seconds=(playbook.created_at_ms - plan.closed_at_ms) / 1000 if plan and is_timed else None,
        **counts(playbook),
        changes=dict(Counter(change.kind for change in playbook.changes)),
        created_at_ms=playbook.created_at_ms,
    )
