"""Whether a record of the scan was planned by its batch's manifest; pure.

Anybody with the right to write a topic can write a result. The manifest limits what publish and scan believe: the
plan must be the manifest's, and named reflections must be the batch's. The content has no such limit: a writer of
results can invent operations for a planned batch.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from combee.core.names import identity
from combee_schemas.batch import Batch, Cluster
from combee_schemas.plan import Plan
from combee_schemas.scan import Echo, Group, Known, NodeResult, Operation, Partial, Planned, Update


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The kept part of a manifest, which is small because a service keeps it for every batch in flight."""

    plan: Plan
    members: Mapping[int, str]
    """Ids of reflections by offset."""
    ids: frozenset[str]
    attempts: Mapping[int, int]
    """Attempts of members that had been dead letters, by offset."""
    clusters: tuple[Cluster, ...] = ()


def kept_of(batch: Batch) -> Manifest:
    """Return the kept part of a manifest."""
    members = {member.offset: member.reflection_id for member in batch.members}
    return Manifest(
        plan=batch.plan,
        members=members,
        ids=frozenset(members.values()),
        attempts={member.offset: member.attempt for member in batch.members if member.attempt},
        clusters=batch.clusters,
    )


def forgery(record: Planned, manifest: Manifest | None) -> str:
    """Return why a record was not planned; empty if it was. None as manifest: it does not exist."""
    if manifest is None:
        return f"{record.plan.batch_id} was never cut: no manifest says so"
    if manifest.plan != record.plan:
        return f"{record.plan.batch_id} was cut otherwise: its manifest has another plan"
    match record:
        case Group():
            named = ((member.offset, member.reflection.reflection_id) for member in record.members)
            is_asked = record.clusters == manifest.clusters
            foreign = "" if is_asked else "clusters that its manifest does not name"
            return _of(record, foreign or _strangers(named, manifest))
        case Partial():
            own = identity.node_id(record.plan.batch_id, record.level, record.index)
            return _of(
                record, "a foreign node id" if record.node_id != own else _foreign(record.result, manifest)
            )
        case Update():  # shuffle's updates without a result belong to no node
            return _of(record, _foreign(record.result, manifest))
    raise AssertionError(f"{record.type} is not a record of the scan")


def _of(record: Planned, problem: str) -> str:
    return f"this {record.type} of {record.plan.batch_id} was not planned: {problem}" if problem else ""


def _foreign(result: NodeResult, manifest: Manifest) -> str:
    seen = ((reflection.offset, reflection.reflection_id) for reflection in result.seen)
    return _strangers(seen, manifest) or _evidence_of_others(result, manifest)


def _strangers(named: Iterable[tuple[int, str]], manifest: Manifest) -> str:
    stranger = next((name for at, name in named if manifest.members.get(at) != name), None)
    return "" if stranger is None else f"it names {stranger}, which is not a member there"


def _evidence_of_others(result: NodeResult, manifest: Manifest) -> str:
    strangers = frozenset(evidence_of(result)) - manifest.ids
    return f"it rests on {min(strangers)}, which is not a member" if strangers else ""


def evidence_of(result: NodeResult) -> Iterator[str]:
    """Return the ids of all reflections in a result's evidence."""
    claims: tuple[Operation | Known | Echo, ...] = (*result.operations, *result.known, *result.echoes)
    return chain.from_iterable(claim.evidence for claim in claims)
