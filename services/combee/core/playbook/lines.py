"""What an agent was shown on one line, as another line of the playbook sees it; pure."""

from combee_schemas.base import Shown
from combee_schemas.digests import digest
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.reflection import Reflection


def shown_to(playbook: Playbook, entries: tuple[Entry, ...]) -> Shown:
    """Return what says that an agent had these entries before it; of a branch also what they said."""
    ids = tuple(entry.id for entry in entries)
    if playbook.branch is None:
        return Shown(version=playbook.version, entry_ids=ids)
    digests = tuple(map(content_digest, entries))
    return Shown(version=playbook.version, entry_ids=ids, line=playbook.name, digests=digests)


def content_digest(entry: Entry) -> str:
    """Return what two entries of one content have in common."""
    return digest("entry", entry.section, entry.content).hex()


def as_seen_on(base: Playbook, reflection: Reflection) -> Reflection:
    """Return a reflection with the tags and shown entries that count on the line of ``base``.

    Each line gives ids by itself, so of an agent that read another line only what says the same on both counts.
    """
    shown = reflection.shown
    if ((shown.line if shown else "") or reflection.playbook) == base.name:
        return reflection
    said = dict(zip(shown.entry_ids, shown.digests, strict=False)) if shown else {}
    same = {entry.id for entry in base.entries if said.get(entry.id) == content_digest(entry)}
    kept = tuple(entry_id for entry_id in said if entry_id in same)
    return reflection.model_copy(
        update={
            "bullet_tags": tuple(tag for tag in reflection.bullet_tags if tag.id in same),
            # They are in this version as they were read.
            "shown": Shown(version=base.version, entry_ids=kept) if shown else None,
        }
    )
