"""What agents are shown of a playbook, and what a record of it means on another line of the playbook; pure."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypedDict

from combee.core.playbook.derived import once_per_version
from combee_schemas.base import Shown, branch_in
from combee_schemas.digests import digest
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.reflection import BulletTag, Reflection

DIGEST_CHARS = 8
"""Length of digests: every record of a run has one per entry, and only digests of one id are compared."""


def shown(playbook: Playbook) -> Playbook:
    """Return a playbook as agents are shown it, without proposed entries."""
    if all(entry.is_active for entry in playbook.entries):
        return playbook
    return playbook.model_copy(
        update={"entries": tuple(entry for entry in playbook.entries if entry.is_active)}
    )


class Counts(TypedDict):
    """Numbers of shown and of proposed entries."""

    entries: int
    proposed: int


def counts(playbook: Playbook) -> Counts:
    """Return a playbook's numbers of entries, for lists."""
    active = sum(entry.is_active for entry in playbook.entries)
    return {"entries": active, "proposed": len(playbook.entries) - active}


def counts_text(entries: int, proposed: int) -> str:
    """Return such numbers in words, for a column of entries."""
    return f"{entries} (+{proposed} proposed)" if proposed else str(entries)


# ---- the record of what one agent was shown


def shown_to(playbook: Playbook, entries: tuple[Entry, ...]) -> Shown:
    """Return the record of an agent's shown entries and their contents."""
    return Shown(
        version=playbook.version,
        entry_ids=tuple(entry.id for entry in entries),
        line=playbook.name if branch_in(playbook.name) else "",
        digests=tuple(map(content_digest, entries)),
    )


def with_digests(shown: Shown, newest: Playbook) -> Shown:
    """Return an agent's shown entries with digests, computed from the newest version if it gives none.

    An entry that has changed since the agent's version gets none.
    """
    if shown.digests or not shown.entry_ids or not 0 < shown.version <= newest.version:
        return shown
    same = {entry.id: entry for entry in newest.entries if entry.updated_version <= shown.version}
    digests = (content_digest(same[entry]) if entry in same else "" for entry in shown.entry_ids)
    return shown.model_copy(update={"digests": tuple(digests)})


def only(shown: Shown, entry_ids: frozenset[str]) -> Shown:
    """Return the record of shown entries reduced to these."""
    kept = [at for at, entry_id in enumerate(shown.entry_ids) if entry_id in entry_ids]
    return shown.model_copy(
        update={
            "entry_ids": tuple(shown.entry_ids[at] for at in kept),
            "digests": tuple(shown.digests[at] for at in kept if at < len(shown.digests)),
        }
    )


def content_digest(entry: Entry) -> str:
    """Return a digest that is equal for entries with the same content."""
    return _digest(entry.section, entry.content)


@lru_cache(16_384)  # the same entries are shown to agent after agent
def _digest(section: str, content: str) -> str:
    return digest("entry", section, content).hex()[:DIGEST_CHARS]


def needless_bytes(reflection: Reflection, line: str) -> int:
    """Return the bytes of a reflection's record that are digests not needed by a call on ``line``.

    Digests tell lines apart; they are not needed for an agent that read this line, and no prompt has them. For four
    hundred entries they are as large as a reflection, and a batch would get more groups because of them.
    """
    shown = reflection.shown
    if shown is None or not shown.digests or (shown.line or reflection.playbook) != line:
        return 0
    return sum(len(digest) + 1 for digest in shown.digests)


def without_needless(reflection: Reflection, line: str) -> Reflection:
    """Return a reflection without the digests that a call on ``line`` does not need."""
    if reflection.shown is None or not needless_bytes(reflection, line):
        return reflection
    return reflection.model_copy(update={"shown": reflection.shown.model_copy(update={"digests": ()})})


@once_per_version
def words_since(base: Playbook) -> Mapping[str, int]:
    """Return by entry the version since which it says this lesson."""
    return {entry.id: entry.created_version for entry in base.entries}


def outdated(base: Playbook, tags: Iterable[BulletTag], shown_version: int | None) -> frozenset[str]:
    """Return the tagged entries of ``base`` that said something else in the version that the agent read."""
    since = words_since(base)
    return frozenset(tag.id for tag in tags if shown_version and shown_version < since.get(tag.id, 0))


def as_seen_on(base: Playbook, reflection: Reflection) -> Reflection:
    """Return a reflection with the tags and shown entries that count on the line of ``base``.

    Each line assigns ids independently, so for an agent that read another line only entries with the same content
    count. Of an agent that read this line, tags of entries that said something else then do not count.
    """
    shown = reflection.shown
    if ((shown.line if shown else "") or reflection.playbook) == base.name:
        others = outdated(base, reflection.bullet_tags, shown.version if shown else None)
        if not others:
            return reflection
        tags = tuple(tag for tag in reflection.bullet_tags if tag.id not in others)
        return reflection.model_copy(update={"bullet_tags": tags})
    digests = dict(zip(shown.entry_ids, shown.digests, strict=False)) if shown else {}
    same = {
        entry.id
        for entry in base.entries
        if entry.id in digests and digests[entry.id] == content_digest(entry)
    }
    kept = tuple(entry_id for entry_id in digests if entry_id in same)
    return reflection.model_copy(
        update={
            "bullet_tags": tuple(tag for tag in reflection.bullet_tags if tag.id in same),
            # They have the same content in this version.
            "shown": Shown(version=base.version, entry_ids=kept) if shown else None,
        }
    )
