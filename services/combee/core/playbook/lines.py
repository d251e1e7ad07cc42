"""What an agent was shown on one line, as another line of the playbook sees it; pure."""

from functools import lru_cache

from combee_schemas.base import Shown, branch_in
from combee_schemas.digests import digest
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.reflection import Reflection

DIGEST_CHARS = 8
"""Digests stand in every record of a run, one per entry, and are compared under one id only."""


def shown_to(playbook: Playbook, entries: tuple[Entry, ...]) -> Shown:
    """Return what says that an agent had these entries before it, and what they said."""
    return Shown(
        version=playbook.version,
        entry_ids=tuple(entry.id for entry in entries),
        line=playbook.name if branch_in(playbook.name) else "",
        digests=tuple(map(content_digest, entries)),
    )


def with_digests(shown: Shown, newest: Playbook) -> Shown:
    """Return what an agent says that it was shown, with digests if it gives none, as far as the newest version tells.

    An entry that has changed since the agent's version gets none.
    """
    if shown.digests or not shown.entry_ids or not 0 < shown.version <= newest.version:
        return shown
    same = {entry.id: entry for entry in newest.entries if entry.updated_version <= shown.version}
    digests = (content_digest(same[entry]) if entry in same else "" for entry in shown.entry_ids)
    return shown.model_copy(update={"digests": tuple(digests)})


def only(shown: Shown, entry_ids: frozenset[str]) -> Shown:
    """Return what says that an agent had only these of the entries before it."""
    kept = [at for at, entry_id in enumerate(shown.entry_ids) if entry_id in entry_ids]
    return shown.model_copy(
        update={
            "entry_ids": tuple(shown.entry_ids[at] for at in kept),
            "digests": tuple(shown.digests[at] for at in kept if at < len(shown.digests)),
        }
    )


def content_digest(entry: Entry) -> str:
    """Return what two entries of one content have in common."""
    return _digest(entry.section, entry.content)


@lru_cache(16_384)  # the same entries are shown to agent after agent
def _digest(section: str, content: str) -> str:
    return digest("entry", section, content).hex()[:DIGEST_CHARS]


def needless_bytes(reflection: Reflection, line: str) -> int:
    """Return how much of a reflection's record are digests that a call on ``line`` does not need.

    Digests tell lines apart: of an agent that read this very line there is nothing to tell, and no prompt has them.
    Of four hundred entries they are as large as a reflection, and a batch would get more groups for them.
    """
    shown = reflection.shown
    if shown is None or not shown.digests or (shown.line or reflection.playbook) != line:
        return 0
    return sum(len(digest) + 1 for digest in shown.digests)


def without_needless(reflection: Reflection, line: str) -> Reflection:
    """Return a reflection without digests that a call on ``line`` does not need."""
    if reflection.shown is None or not needless_bytes(reflection, line):
        return reflection
    return reflection.model_copy(update={"shown": reflection.shown.model_copy(update={"digests": ()})})


def as_seen_on(base: Playbook, reflection: Reflection) -> Reflection:
    """Return a reflection with the tags and shown entries that count on the line of ``base``.

    Each line gives ids by itself, so of an agent that read another line only what says the same on both counts.
    """
    shown = reflection.shown
    if ((shown.line if shown else "") or reflection.playbook) == base.name:
        return reflection
    said = dict(zip(shown.entry_ids, shown.digests, strict=False)) if shown else {}
    same = {
        entry.id for entry in base.entries if entry.id in said and said[entry.id] == content_digest(entry)
    }
    kept = tuple(entry_id for entry_id in said if entry_id in same)
    return reflection.model_copy(
        update={
            "bullet_tags": tuple(tag for tag in reflection.bullet_tags if tag.id in same),
            # They are in this version as they were read.
            "shown": Shown(version=base.version, entry_ids=kept) if shown else None,
        }
    )
