"""What a person rejects of a candidate: it is taken out of the playbook, and is not learned again; pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from combee.core.names.sources import counted_name
from combee.core.playbook.budget import budget_of, evictions
from combee.core.playbook.comparison import Comparison
from combee.core.playbook.lineage.evidence import resting_on, without
from combee.core.playbook.operations import union
from combee.core.playbook.sections import id_in
from combee.core.playbook.trust import (
    Rejections,
    barred_sources,
    names_counted,
    parts_if_several,
    said_digest,
    without_claims,
    wording_digest,
)
from combee.core.text.similarity.lessons import same_lesson
from combee_schemas.plan import Plan
from combee_schemas.playbook import EVIDENCE_KEPT, REJECTED_KEPT, Change, Entry, Playbook, Rejected
from combee_schemas.scan import Operation, OperationKind, Update

NAMED = 20
"""Entries or sources that an error message lists."""
RULE = "candidate:{version}"
"""The rule of a revocation that a rejection is, if it names reflections."""
BATCH = "batch:{batch_id}"
"""The rule of one that names a batch without reflections of its own."""


def is_revoked(plan: Plan, playbook: Playbook) -> bool:
    """Return whether a whole batch is revoked."""
    rule = BATCH.format(batch_id=plan.batch_id)
    return any(revocation.rule == rule for revocation in playbook.revocations)


def is_batch_rule(rule: str) -> bool:
    """Return whether a rule of a revocation names a batch."""
    return rule.startswith(BATCH.format(batch_id=""))


def is_rejection(version: Playbook) -> bool:
    """Return whether a rejection at the gate made a version."""
    begins = RULE.format(version=""), BATCH.format(batch_id="")
    revoked = any(
        rule.version == version.version and rule.rule.startswith(begins) for rule in version.revocations
    )
    return version.origin == "reject" or (version.origin == "revoke" and revoked)


# ---- what can be rejected


def unknown_entries(difference: Comparison, entry_ids: Iterable[str]) -> str | None:
    """Return why these entries of a candidate cannot be rejected, and the remedy; None: they can."""
    known = difference.entry_ids
    unknown = [entry_id for entry_id in entry_ids if entry_id not in known]
    what = f"version {difference.after} of {difference.name} changes no entry"
    return _complaint(what, unknown, known, difference.name) if unknown else None


def unknown_sources(name: str, number: int, known: Collection[str], sources: Iterable[str]) -> str | None:
    """Return why what these sources taught cannot be rejected, and the remedy; None: it can."""
    unknown = [source for source in sources if source not in known]
    what = f"version {number} of {name} has learned nothing, since what agents read, from"
    return _complaint(what, unknown, known, name) if unknown else None


def _complaint(what: str, unknown: Collection[str], known: Collection[str], name: str) -> str:
    listed = ", ".join([*known][:NAMED]) or "none"
    more = f" and {len(known) - NAMED} more" if len(known) > NAMED else ""
    return f"{what} {', '.join(unknown)}: choose of {listed}{more} ('combee review {name}' shows them)"


def taught_by(updates: Iterable[Update]) -> dict[str, tuple[str, ...]]:
    """Return the reflections that got into batches, by their source."""
    ids: dict[str, tuple[str, ...]] = {}
    for update in updates:
        for seen in update.result.seen:
            if seen.ok:
                source = counted_name(seen.source, names_counted(update.plan.settings))
                ids[source] = union(ids.get(source, ()), (seen.reflection_id,))
    return ids


def of_batches(
    updates: Sequence[Update], current: Playbook, number: int, *, at_once: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what the rejection of version ``number`` revokes: the reflections of its batches, and the rules.

    Batches without reflections of their own are revoked as such. A judge that measures cannot tell which batch is to
    blame: consolidations go first, and what was asked about again last, since its reflections came with earlier
    batches; what is left is judged again. ``at_once``: a person has looked at all of it.
    """
    gone = frozenset(current.revoked)
    # What is taken back already would be taken back, and judged, again and again.
    came = (update for update in updates if update.plan.reason != "revoke")
    ids = tuple(one for one in union(*taught_by(came).values()) if one not in gone)
    news = (RULE.format(version=number),) if ids else ()
    united, asked = (
        tuple(
            BATCH.format(batch_id=update.plan.batch_id)
            for update in updates
            if update.plan.reason == reason and not is_revoked(update.plan, current)
        )
        for reason in ("consolidate", "revoke")
    )
    if at_once:
        return ids, (*news, *united, *asked)
    return (() if united else ids), united or news or asked


# ---- entries


def witnesses(
    updates: Iterable[Update], candidate: Playbook, entry_ids: Collection[str]
) -> Mapping[str, tuple[str, ...]]:
    """Return the reflections behind what batches made of entries."""
    says = {entry.id: entry.content for entry in candidate.entries}
    operations = [operation for update in updates for operation in update.result.operations]

    def made(operation: Operation, entry_id: str) -> bool:
        # Who confirmed other words of the entry has not taught these.
        if entry_id in says and operation.kind != OperationKind.REMOVE:
            return same_lesson(operation.content, says[entry_id])
        return entry_id in operation.entry_ids

    return {
        entry_id: union(*(operation.evidence for operation in operations if made(operation, entry_id)))
        for entry_id in entry_ids
    }


def without_entries(
    current: Playbook,
    candidate: Playbook,
    production: Playbook,
    behind: Mapping[str, tuple[str, ...]],
    *,
    between: Iterable[Playbook] = (),
    budget_tokens: int,
) -> Playbook:
    """Return a playbook in which entries are as they were before they said what is rejected, and else gone.

    So are other entries that say it, unless agents read it in production, or a person stands behind them.
    ``behind``: the entries that are rejected of ``candidate``, each with its witnesses. ``between``: the versions
    from production up to the candidate, as far as they have these entries. An entry that agents read in production
    has the words that it has there, with all that supported them since; one that was only proposed is proposed again.
    The counts of tags stay; whom other words helped or harmed is not said of these.
    """
    says = {entry.id: entry.content for entry in candidate.entries}
    was = _before_rejected(production, between, says, behind, current)
    spared = {entry.content for entry in production.entries if entry.is_active}
    spared |= {entry.content for entry in was.values()}
    spared |= {
        entry.content
        for entry in current.entries
        if entry.by_hand and not (entry.id in behind and entry.content == says.get(entry.id))
    }
    rejected = tuple(
        Rejected(
            entry_id=entry_id, said=_barring(says.get(entry_id, ""), spared), evidence=ids[-EVIDENCE_KEPT:]
        )
        for entry_id, ids in behind.items()
    )
    entries, changes = {entry.id: entry for entry in current.entries}, list[Change]()
    version, next_id = current.version + 1, current.next_id
    for entry_id, ids in behind.items():
        now, before = entries.get(entry_id), was.get(entry_id)
        if now is not None and now.by_hand and now.content != says.get(entry_id):
            continue  # a person has written or kept it since
        entries.pop(entry_id, None)
        said = says.get(entry_id, ""), before.content if before else ""
        is_other = current.holds == "entries" and now is not None and not _is_any(now.content, said)
        if now is not None and is_other:
            # The candidate does not say it: it is judged anew.
            own = id_in(now.section, next_id) if before else entry_id
            next_id += before is not None
            entries[own] = without(now, ids).model_copy(update={"id": own, "updated_version": version})
            changes += [Change(kind="add", entry_id=own)] if before else []
        if before is not None:
            # A component has one text: what was written in its place goes with what is rejected.
            if current.holds == "components":
                anew = [one.id for one in entries.values() if one.section == before.section]
                changes += [_change("remove", entries.pop(one)) for one in anew]
            entries[entry_id] = _restored(before, now, version)
            changes.append(_change("update" if now else "add", now or before))
        elif now is not None and not is_other:
            changes.append(_change("remove", now))
    # Somebody may have said it anew while the candidate waited.
    rejections = Rejections(frozenset(one.said for one in rejected))
    for entry in [*entries.values()]:
        if rejections.has(entry.content):
            changes.append(_change("remove", entries.pop(entry.id)))
    order = [entry.id for entry in current.entries if entry.id in entries]
    kept = tuple(entries[entry_id] for entry_id in dict.fromkeys((*order, *entries)))
    room = parts_if_several(current)
    budget = budget_of(current, budget_tokens)
    out = (
        frozenset(evictions(kept, budget, production.entries, current.sections, room))
        if current.holds == "entries"
        else frozenset()
    )
    changes += [Change(kind="evict", entry_id=e.id, detail=e.content[:300]) for e in kept if e.id in out]
    return current.model_copy(
        update={
            "entries": tuple(entry for entry in kept if entry.id not in out),
            "next_id": next_id,
            "changes": tuple(changes),
            "rejected": (*current.rejected, *rejected)[-REJECTED_KEPT:],
        }
    )


def _barring(content: str, spared: Collection[str]) -> str:
    """Return the digest of a rejected content's wording, or of its very words where what is ``spared`` has that.

    Else that would not come back where something takes it away. Empty if it says the same.
    """
    if not content or _is_any(content, spared):
        return ""
    wordings = map(wording_digest, spared)
    return said_digest(content) if wording_digest(content) in wordings else wording_digest(content)


def _is_any(content: str, others: Iterable[str]) -> bool:
    return any(same_lesson(content, other) for other in others)


def _before_rejected(
    production: Playbook,
    between: Iterable[Playbook],
    says: Mapping[str, str],
    entry_ids: Collection[str],
    current: Playbook,
) -> dict[str, Entry]:
    """Return entries as they were last with the words that they get back, without what is revoked since.

    No proposal comes back that is rejected, too, under whatever id.
    """
    named, rejections = [says[entry_id] for entry_id in entry_ids if entry_id in says], Rejections.of(current)
    read = {entry.id: entry.content for entry in production.entries if entry.is_active}
    last: dict[str, Entry] = {}
    for version in (production, *between):
        for entry in without_claims(version, current.trust).entries:
            is_read = entry.content == read.get(entry.id)
            is_proposal = (
                entry.id not in read
                and not entry.is_active
                and not (_is_any(entry.content, named) or rejections.has(entry.content))
            )
            if entry.id in entry_ids and (is_read or is_proposal):
                last[entry.id] = entry
    gone, sources = frozenset(current.revoked), barred_sources(current)
    alone = {entry.id for entry in resting_on(last.values(), gone) if not entry.by_hand}
    return {
        entry_id: without(entry, gone, sources) for entry_id, entry in last.items() if entry_id not in alone
    }


def _restored(before: Entry, now: Entry | None, version: int) -> Entry:
    """Return an entry with its former words; tags of agents that read other words until now are not about these.

    What waits keeps its version: who has said its rival since then still counts.
    """
    began = {"created_version": version} if before.is_active else {}
    counted = {"helpful", "harmful"}
    if now and same_lesson(before.content, now.content):
        counted |= {"harmed", "helped", "created_version"}
    kept = now.model_dump(include=counted) if now else {}
    return before.model_copy(update={**began, **kept, "updated_version": version})


def _change(kind: str, entry: Entry) -> Change:
    return Change.model_validate(
        {"kind": kind, "entry_id": entry.id, "detail": f"rejected: {entry.content[:290]}"}
    )


def without_rejected(playbook: Playbook, current: Playbook) -> Playbook:
    """Return a playbook without entries that say what was rejected of ``current``, and that it does not say now."""
    kept = allowed(playbook.entries, current)
    return playbook if len(kept) == len(playbook.entries) else playbook.model_copy(update={"entries": kept})


def allowed(entries: Iterable[Entry], current: Playbook) -> tuple[Entry, ...]:
    """Return entries without those that say what was rejected of ``current``, and that it does not say now."""
    rejections, says = Rejections.of(current), {entry.content for entry in current.entries}
    return tuple(entry for entry in entries if entry.content in says or not rejections.has(entry.content))
