"""A playbook and its branches share revocations; a branch's content can be adopted; pure."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from combee.core.playbook.lineage.evidence import rules_for
from combee.core.playbook.operations import union
from combee.core.playbook.sections import id_in, number_of
from combee_schemas.base import branch_in
from combee_schemas.playbook import Adopted, Change, Entry, Playbook


def learns(line: Playbook) -> bool:
    """Return whether a line learns; a branch that was deleted and created again does not."""
    return not branch_in(line.name) or line.branch is not None


def with_revocations_of(playbook: Playbook, other: Playbook) -> Playbook:
    """Return a line with the revocations of another line of its playbook added.

    Each of the two lines then records all revocations. The next version of ``playbook`` names those that are new to
    it, with their rules.
    """
    rules, others, made = playbook.revocations, other.revocations, playbook.version + 1
    known, gone = {revocation.rule for revocation in rules}, frozenset(playbook.revoked)
    new = tuple(
        revocation.model_copy(update={"version": made})
        for revocation in others
        if revocation.rule not in known
    )
    news = [reflection_id for reflection_id in other.revoked if reflection_id not in gone]
    if news and not new:
        # On the other line, a rule of the same words selected more reflections.
        retained_from = max((revocation.retained_from for revocation in others), default=0)
        new = rules_for((), news, version=made, retained_from=retained_from)
    return playbook.model_copy(
        update={"revoked": union(playbook.revoked, news), "revocations": (*rules, *new)}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """A branch's version to be adopted by its playbook, and the facts that decide about it."""

    line: Playbook
    """The branch's newest version, whose revocations hold for ever."""
    target: Playbook
    forked: Playbook | None
    """The playbook's version that the branch began with; None: the branch no longer learns."""
    unread: int
    """Number of reflections in the playbook's version that the branch's has not read."""
    learned: frozenset[int] = frozenset()
    """Offsets of the reflections that the playbook has batched since then, some beyond others that still wait."""

    def refusal(self) -> str | None:
        """Return why the version must not be adopted, and the remedy; None: it may."""
        line, version = self.target.name, self.target.version
        if self.forked is None:
            return f"version {version} of {line} is of no branch that learns: export and import it instead"
        if self.unread:
            lacks = f"version {version} of {line} has not read {self.unread} reflections that"
            remedy = f"let its window close, or flush {line} over HTTP, then adopt its newest version"
            failed = "send its dead letters again; what failed before the fork needs a new branch"
            return f"{lacks} {self.forked.name} has learned from: {remedy}; {failed}"
        return None

    def prepared(self, current: Playbook) -> Playbook:
        """Return the playbook prepared for the adoption, with the branch's revocations and free next ids."""
        next_id = max(current.next_id, self.line.next_id)
        return with_revocations_of(current, self.line).model_copy(update={"next_id": next_id})

    def ids(self, current: Playbook, entries: Sequence[Entry], next_id: int) -> dict[str, str]:
        """Return the playbook's id of each of a branch's entries; new ids begin at ``next_id``.

        An entry with the same content as one of the playbook gets its id; an entry from before the fork keeps its
        own. A newer entry keeps its id if the playbook never assigned it: an id must not come to mean another entry.
        """
        same = {(entry.section, entry.content): entry.id for entry in reversed(current.entries)}
        began = {entry.id for entry in self.forked.entries} if self.forked else set[str]()
        given = {entry.id for entry in current.entries}
        ids = {
            entry.id: same.pop((entry.section, entry.content))
            for entry in entries
            if (entry.section, entry.content) in same
        }
        taken = set(ids.values())
        for entry in entries:
            if entry.id in ids:
                continue
            number = number_of(entry.id)
            is_free = number >= current.next_id if number else entry.id not in given
            if (entry.id in began or is_free) and entry.id not in taken:
                ids[entry.id] = entry.id
            else:
                ids[entry.id] = id_in(entry.section, next_id)
                next_id += 1
            taken.add(ids[entry.id])
        return ids


def taken_over(adoption: Adoption, current: Playbook, content: Playbook) -> Playbook:
    """Return ``content``, the remaining content of a branch's version, as its playbook's next version.

    The reflections to be asked about again (``again``) are the branch's, except those that the playbook's next
    batches contain anyway.
    """
    ids = adoption.ids(current, content.entries, content.next_id)
    version, target = current.version + 1, adoption.target
    # Both lines began with these batches.
    begun = adoption.forked.manifest_offset if adoption.forked else -1
    renamed = (
        entry.model_copy(
            update={
                "id": ids[entry.id],
                "replaces": tuple(ids[other] for other in entry.replaces if other in ids),
                "rivals": tuple(ids[other] for other in entry.rivals if other in ids),
                "updated_version": version,
            }
        )
        for entry in content.entries
    )
    late = {ids[entry_id] for entry_id in overtaken(content.entries)}
    entries = as_earlier(dated(renamed, current), late)
    change = Change(kind="adopt", detail=f"version {target.version} of {target.name}")
    other = {new: old for old, new in ids.items() if new != old}
    return content.model_copy(
        update={
            "entries": entries,
            "next_id": max([content.next_id, *(number_of(entry.id) + 1 for entry in entries)]),
            "changes": (change, *(_renamed_change(change, ids) for change in content.changes)),
            "adopted": Adopted(line=target.name, version=target.version, renamed=other),
            "counted_offset": target.through_offset,
            "again": tuple(
                asked
                for asked in content.again
                if asked.offset <= current.through_offset
                or asked.offset in adoption.learned
                or asked.manifest_offset <= begun
            ),
        }
    )


def overtaken(entries: Sequence[Entry]) -> frozenset[str]:
    """Return what waits next to words that came later, or to contrary ones that somebody has said since.

    Where all entries begin anew, as on a branch, nothing else would tell who has spoken of what.
    """
    by_id = {entry.id: entry for entry in entries}

    def is_overtaken(entry: Entry) -> bool:
        linked = (by_id[one].created_version for one in (*entry.replaces, *entry.rivals) if one in by_id)
        said = (by_id[one].updated_version for one in entry.rivals if one in by_id)
        return max((*linked, *said), default=0) > entry.created_version

    return frozenset(entry.id for entry in entries if not entry.is_active and is_overtaken(entry))


def as_earlier(entries: Iterable[Entry], ids: Container[str]) -> tuple[Entry, ...]:
    """Return entries, those with these ids as older than all others."""
    return tuple(
        entry.model_copy(update={"created_version": 0}) if entry.id in ids else entry for entry in entries
    )


def dated(entries: Iterable[Entry], current: Playbook) -> tuple[Entry, ...]:
    """Return entries, those that ``current`` does not contain in the same words as new in the next version.

    What agents that read ``current`` say of these ids is about other words.
    """
    since = {(entry.id, entry.content): entry.created_version for entry in current.entries}
    version = current.version + 1
    return tuple(
        entry.model_copy(update={"created_version": since.get((entry.id, entry.content), version)})
        for entry in entries
    )


def _renamed_change(change: Change, ids: Mapping[str, str]) -> Change:
    return change.model_copy(update={"entry_id": ids.get(change.entry_id, change.entry_id)})
