"""A batch's reflections, read again by its root."""

from collections.abc import Collection

from combee.adapters.ports import Log
from combee.core.batching.planned import Manifest
from combee.log.history import partition_of
from combee_schemas import topics
from combee_schemas.base import playbook_of
from combee_schemas.scan import GroupMember

READ_AT_ONCE = 200
"""Maximum number of reflections in one read."""


async def members_of(log: Log, manifest: Manifest | None, offsets: Collection[int]) -> list[GroupMember]:
    """Return the members of a manifest at these offsets, under their ids there; erased ones are missing."""
    if manifest is None:
        return []
    name = playbook_of(manifest.plan.playbook)
    source = await partition_of(log, topics.REFLECTIONS, name)
    wanted = sorted(offset for offset in manifest.members if offset in offsets)
    members = []
    for start in range(0, len(wanted), READ_AT_ONCE):
        records = await log.read_at(source, wanted[start : start + READ_AT_ONCE])
        for offset, record in records.items():
            for reflection in topics.REFLECTIONS.under(name, [record]):
                own = reflection.model_copy(update={"reflection_id": manifest.members[offset]})
                members.append(GroupMember(offset=offset, reflection=own))
    return members
