"""Complete evidence of entries, and revocations; snapshots keep a part, ``history`` and ``updates`` the rest; pure.

A snapshot keeps the last 20 evidence ids per entry, and the rules of revocations.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from combee.core.playbook.operations import union
from combee.core.playbook.shown import words_since
from combee.core.playbook.versions import drafted
from combee_schemas.playbook import Entry, Playbook, Revocation
from combee_schemas.scan import Update

Place = tuple[str, int]
"""A line and the number of one of its versions."""
IDS_NAMED = 20
"""Maximum number of ids that a snapshot names for one revocation; more ids become one rule."""


def has_all(entry: Entry) -> bool:
    """Return whether a snapshot names the complete evidence of an entry."""
    return entry.evidence_count <= len(entry.evidence)


def is_whole(version: Playbook) -> bool:
    """Return whether a snapshot names the complete evidence of its entries."""
    return all(map(has_all, version.entries))


def place(version: Playbook) -> Place:
    """Return the place of a version among those of all its playbook's lines."""
    return version.name, version.version


def is_fork(version: Playbook) -> bool:
    """Return whether a branch begins with this version."""
    return version.batch is not None and version.batch.plan.branch is not None


def began_with(version: Playbook) -> Place:
    """Return the version whose entries this one began with.

    It is the version before, a rollback's target, or the forked or adopted version of another line.
    """
    if version.adopted is not None:
        return version.adopted.line, version.adopted.version
    if version.batch is not None and (branch := version.batch.plan.branch) is not None:
        return branch.of, branch.version
    return version.name, version.rolled_back_to or version.version - 1


def ids_here(version: Playbook) -> dict[str, str]:
    """Return the changed ids of entries in an adopting version: old id → id here."""
    return {old: new for new, old in version.adopted.renamed.items()} if version.adopted else {}


def here(entries: Iterable[Entry], version: Playbook) -> tuple[Entry, ...]:
    """Return the entries that a version began with, under their ids on its line."""
    if version.adopted is None and not is_fork(version):
        return tuple(entries)
    since = words_since(version)
    ids = ids_here(version)
    return tuple(
        entry.model_copy(
            update={
                "id": (own := ids.get(entry.id, entry.id)),
                "created_version": since.get(own, version.version),
            }
        )
        for entry in entries
    )


def ancestry(newest: Place, before: Mapping[Place, Place], whole: Collection[Place] = ()) -> list[Place]:
    """Return the versions from which the evidence of ``newest`` follows, oldest first.

    ``before`` gives the version that each retained version began with. The first one is whole, version 0, or the
    oldest.
    """
    path = [newest]
    while path[-1] not in whole and (earlier := before.get(path[-1])):
        if earlier not in before and earlier[1]:
            break
        path.append(earlier)
    return path[::-1]


def followed(before: Playbook, version: Playbook, update: Update | None) -> Playbook:
    """Return ``version`` with its complete evidence, given that of ``before``, and its batch's ``update`` if any.

    Revoked evidence is still included. If the log knows too little, an entry keeps its count next to the known
    evidence.
    """
    touched = {entry.id for entry in version.entries if entry.updated_version == version.version}
    known = {entry.id: entry for entry in here(before.entries, version)}
    merged = any(change.kind == "merge" for change in version.changes)
    hiding = (entry for entry in version.entries if entry.id in touched and not has_all(entry))
    if update is not None and any(merged or not _shows_news(entry, known.get(entry.id)) for entry in hiding):
        draft = drafted(before, update)
        # Evidence refused for size is missing in an entry that this version did not change.
        known |= {entry_id: entry for entry_id, entry in draft.entries.items() if entry_id in touched}
    elif version.origin == "reject":
        # Evidence of the rejected content does not support the restored one.
        taught = {rejected.entry_id: rejected.evidence for rejected in version.rejected}
        known |= {
            entry_id: without(known[entry_id], taught[entry_id])
            for entry_id in touched & taught.keys() & known.keys()
        }
    elif version.origin == "import":
        known = {
            entry.id: known[entry.id] for entry in version.entries if _is_same(known.get(entry.id), entry)
        }
    entries = (
        _completed(entry, known.get(entry.id), is_all=update is not None or entry.id not in touched)
        for entry in version.entries
    )
    return version.model_copy(update={"entries": tuple(entries)})


def rules_for(
    rules: Sequence[str], ids: Iterable[str], *, version: int, retained_from: int = 0
) -> tuple[Revocation, ...]:
    """Return the rules of one revocation as snapshots keep them; without rules, its ids become rules."""
    rules = rules or [f"id:{reflection_id}" for reflection_id in ids]
    given = [rule for rule in rules if rule.startswith("id:")]
    if len(given) > IDS_NAMED:
        rules = [*(rule for rule in rules if not rule.startswith("id:")), f"ids:{len(given)}"]
    return tuple(Revocation(rule=rule, retained_from=retained_from, version=version) for rule in rules)


def resting_on(entries: Iterable[Entry], revoked: Collection[str]) -> list[Entry]:
    """Return the entries that rest on nothing but ``revoked``; entries without evidence are not included."""
    left = ((entry, without(entry, revoked)) for entry in entries if entry.evidence)
    return [entry for entry, rest in left if not rest.evidence and not rest.evidence_count]


def without(entry: Entry, revoked: Collection[str], sources: Collection[str] = ()) -> Entry:
    """Return an entry without ``revoked`` evidence, and without the names of the revoked ``sources``.

    An entry left without evidence names no source.
    """
    left = tuple(reflection_id for reflection_id in entry.evidence if reflection_id not in revoked)
    lost = len(entry.evidence) - len(left)
    count = max(0, entry.evidence_count - lost)
    names, recognised = (
        tuple(name for name in known if name not in sources) if count or not lost else ()
        for known in (entry.sources, entry.recognised)
    )
    supporting = tuple(reflection_id for reflection_id in entry.support if reflection_id not in revoked)
    harmed, helped = (
        tuple(name for name in known if name not in sources) for known in (entry.harmed, entry.helped)
    )
    was = entry.sources, entry.recognised, entry.support, entry.harmed, entry.helped
    if not lost and (names, recognised, supporting, harmed, helped) == was:
        return entry
    update = {
        "evidence": left,
        "evidence_count": count,
        "sources": names,
        "recognised": recognised,
        "harmed": harmed,
        "helped": helped,
        "support": supporting,
    }
    return entry.model_copy(update=update)


def _shows_news(entry: Entry, known: Entry | None) -> bool:
    """Return whether a snapshot names all new evidence: ids are in order, so all after a known one are included."""
    return known is not None and entry.evidence[:1] != () and entry.evidence[0] in known.evidence


def _is_same(known: Entry | None, entry: Entry) -> bool:
    """Return whether an import kept an entry."""
    return known is not None and known.content == entry.content and set(entry.evidence) <= set(known.evidence)


def _completed(entry: Entry, known: Entry | None, *, is_all: bool) -> Entry:
    """Return a snapshot's entry with the known evidence added; ``is_all``: it has no other."""
    if known is None or has_all(entry):
        return entry
    evidence = union(known.evidence, entry.evidence)
    count = known.evidence_count + len(evidence) - len(known.evidence)
    if not is_all:
        count = max(entry.evidence_count, len(evidence))
    return entry.model_copy(update={"evidence": evidence, "evidence_count": count})
