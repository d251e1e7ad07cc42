"""From a closing window to a manifest, and from a manifest to its groups; pure, so batches can be replayed."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from statistics import fmean
from typing import Any

from combee.core.batching import shuffle, tree
from combee.core.names import identity
from combee_schemas.base import MAX_SCORES, NOTHING_SPENT, Message, Usage
from combee_schemas.batch import Batch, Cluster, Member
from combee_schemas.plan import Branch, CloseReason, Outcomes, Plan, PlanSettings
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Group, GroupMember, NodeResult, NodeStatus, Seen, Update

RUNS_BYTES = 256 << 10
"""Maximum bytes of members' scores and sources in a manifest, so that it fits a record; more are left out.

Scores go first, then names that are only claimed: a revocation finds by the sources what is to be taken back."""
AGAIN_AT_ONCE, AGAIN_BYTES = 200, 8 << 20
"""Maximum number and bytes of reflections in a batch that asks about them again."""
CHECKING_CALLS = 2
"""Maximum number of calls with which a batch's root checks its result: the check, and one about what is left."""
LEFT_OUT_ENDINGS = (
    *("offset", "_ms", "seconds", "retries", "waiting", "spend", "cached_tokens"),
    *("hedges", "left_out", "automatic", "embeddings", "proven"),
)
"""Endings of fields left out of canonical bytes: timings and what depends on them (what waited, the current day),
issuers, log positions, and the results of proofs. All other fields follow from the input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The playbook version that all nodes of a batch see."""

    version: int
    sequence: int
    """Sequence of the last batch it contains."""


def base_of(playbook: Playbook) -> Base:
    """Return a manifest's description of the version that its batch is planned on."""
    return Base(version=playbook.version, sequence=playbook.batch_sequence)


def _header(playbook: str, sequence: int, settings: PlanSettings, base: Base) -> dict[str, Any]:
    """Return the part of the plan that all kinds of batches share: batch, settings and base version."""
    return {
        "batch_id": identity.batch_id(playbook, sequence),
        "playbook": playbook,
        "sequence": sequence,
        "settings": settings,
        "base_version": base.version,
        "base_sequence": base.sequence,
    }


def plan_batch(
    playbook: str,
    sequence: int,
    members: Sequence[Member],
    sizes: Sequence[int],
    *,
    settings: PlanSettings,
    base: Base,
    reason: CloseReason,
    batch_size: int,
    through_offset: int,
    dropped: Sequence[Member] = (),
    waiting: int = 0,
    left_out: tuple[int, ...] | None = None,
    reflect_usage: Usage = NOTHING_SPENT,
    closed_at_ms: int = 0,
) -> Batch:
    """Return the manifest of a batch of ``members``; ``sizes`` are their bytes."""
    header = _header(playbook, sequence, settings, base)
    seed = identity.batch_seed(playbook, sequence, tuple(m.reflection_id for m in members), settings.salt)
    shape = shuffle.plan_shape(sizes, seed, settings)
    plan = Plan(
        **header,
        widths=shape.widths,
        through_offset=through_offset,
        reflections=len(members),
        batch_size=batch_size,
        waiting=waiting,
        reason=reason,
        outcomes=outcomes(members),
        reflect_usage=reflect_usage,
        closed_at_ms=closed_at_ms,
    )
    kept = tuple(members)
    for shortened in (_without_score, _without_claim, _without_run):
        if sum(map(_run_bytes, kept)) > RUNS_BYTES:
            kept = tuple(map(shortened, kept))
    batch = Batch(
        plan=plan,
        seed=seed,
        members=kept,
        dropped=tuple(dropped),
        copies=shape.copies,
        shape_reason=shape.reason,
    )
    believed = left_out if not left_out or _is_covered(batch, left_out) else None
    known = {"sha256": plan_hash(batch), "left_out": believed}
    return batch.model_copy(update={"plan": plan.model_copy(update=known)})


def _is_covered(batch: Batch, left_out: Collection[int]) -> bool:
    """Return whether every member still has a copy outside these children of the root."""
    widths = batch.plan.widths
    kept = (
        group
        for index, group in enumerate(deal_batch(batch))
        if not tree.is_left_out(widths, index, left_out)
    )
    return len({member.offset for group in kept for member in group}) == len(batch.members)


def plan_consolidation(
    playbook: str,
    sequence: int,
    clusters: Sequence[Cluster],
    *,
    settings: PlanSettings,
    base: Base,
    command_id: str,
    through_offset: int,
    automatic: bool = False,
    embeddings: str = "",
    usage: Usage = NOTHING_SPENT,
    waiting: int = 0,
    closed_at_ms: int = 0,
) -> Batch:
    """Return the manifest of a batch without reflections: one call is asked about ``clusters`` of entries.

    ``automatic``: without a request; ``embeddings`` describes the embedding model, and ``usage`` its cost.
    """
    plan = Plan(
        **_header(playbook, sequence, settings, base),
        widths=(1,),
        through_offset=through_offset,
        reflections=0,
        waiting=waiting,
        reason="consolidate",
        command_id=command_id,
        automatic=automatic,
        reflect_usage=usage,
        closed_at_ms=closed_at_ms,
    )
    why = f"one call about {len(clusters)} clusters of entries"
    return _without_members(plan, why, clusters=clusters, embeddings=embeddings)


def plan_fork(
    line: str,
    sequence: int,
    branch: Branch,
    *,
    settings: PlanSettings,
    base: Base,
    command_id: str,
    through_offset: int,
    closed_at_ms: int = 0,
) -> Batch:
    """Return the manifest of a branch's first batch, which has no reflections and asks no model."""
    plan = Plan(
        **_header(line, sequence, settings, base),
        widths=(1,),
        through_offset=through_offset,
        reflections=0,
        reason="branch",
        command_id=command_id,
        branch=branch,
        closed_at_ms=closed_at_ms,
    )
    return _without_members(plan, f"begins with version {branch.version} of {branch.of}")


def _without_members(
    plan: Plan, why: str, *, clusters: Sequence[Cluster] = (), embeddings: str = ""
) -> Batch:
    batch = Batch(
        plan=plan,
        seed=identity.batch_seed(plan.playbook, plan.sequence, (), plan.settings.salt),
        members=(),
        clusters=tuple(clusters),
        embeddings=embeddings,
        copies=1,
        shape_reason=why,
    )
    return batch.model_copy(update={"plan": plan.model_copy(update={"sha256": plan_hash(batch)})})


def without_result(batch: Batch, manifest_offset: int, status: NodeStatus, reason: str) -> Update:
    """Return an update that closes a batch without a result: its reflections, if any, go to the dead letters."""
    result = NodeResult(
        status=status,
        reason=reason,
        seen=tuple(
            Seen(reflection_id=member.reflection_id, offset=member.offset, ok=False, source=member.source)
            for member in batch.members
        ),
        usage=Usage(skips=sum(batch.plan.widths)),
    )
    node_id = f"{'degraded' if status == 'failed' else status}-{batch.plan.batch_id}"
    return Update(plan=batch.plan, manifest_offset=manifest_offset, node_id=node_id, result=result)


def go_together(sizes: Sequence[int]) -> int:
    """Return how many of the reflections to be asked about again, in order, fit one batch."""
    total = 0
    for count, size in enumerate(sizes[:AGAIN_AT_ONCE]):
        total += size
        if count and total > AGAIN_BYTES:
            return count
    return min(len(sizes), AGAIN_AT_ONCE)


def calls_again(sizes: Sequence[int], settings: PlanSettings) -> int:
    """Return the maximum number of calls of the batches that ask about reflections of these sizes again.

    Prompts that are too long and are halved take more.
    """
    calls = 0
    while count := go_together(sizes):
        calls += sum(shuffle.plan_shape(sizes[:count], 0, settings).widths) + CHECKING_CALLS * settings.carry
        sizes = sizes[count:]
    return calls


def plan_hash(batch: Batch) -> str:
    """Return the SHA-256 of a manifest without the effects of time, such as the reason for closing."""
    circumstance = {
        "sha256": "",
        "base_version": 0,
        "base_sequence": 0,
        "batch_size": 0,
        "reason": "size",
        "reflect_usage": NOTHING_SPENT,
    }
    header = batch.plan.model_copy(update=circumstance)
    bare = batch.model_copy(update={"plan": header, "dropped": (), "max_inflight_batches": 0})
    return sha256(canonical(bare)).hexdigest()


def same_plan(batch: Batch, recorded: Batch, *, templates: bool) -> bool:
    """Return whether a batch is cut like a recorded one; with ``templates``, also with the same prompts."""
    settings, known = batch.plan.settings, recorded.plan.settings
    if not templates:
        wording = {name: getattr(known, name) for name in ("templates", "prompts", "playbook_tokens")}
        settings = settings.model_copy(update=wording)
    plan = batch.plan.model_copy(update={"settings": settings})
    return plan_hash(batch.model_copy(update={"plan": plan})) == plan_hash(recorded)


def with_run(member: Member, reflection: Reflection) -> Member:
    """Return a member with its producer's report on the run; one of an earlier batch keeps its source."""
    source = member.source or reflection.source
    run = {"score": reflection.score, "success": reflection.success, "source": source}
    return member.model_copy(update=run)


def _without_score(member: Member) -> Member:
    source = member.source.model_copy(update={"proof": ""}) if member.source else None
    return member.model_copy(update={"score": {}, "source": source})


def _without_claim(member: Member) -> Member:
    return member if member.source and member.source.proven else _without_run(member)


def _without_run(member: Member) -> Member:
    return Member(offset=member.offset, reflection_id=member.reflection_id, attempt=member.attempt)


def _run_bytes(member: Member) -> int:
    """Return the approximate size of a member's run in a record."""
    source = (member.source.name, member.source.proof) if member.source else ()
    return sum(len(text.encode(errors="replace")) + 14 for text in (*source, *member.score))


def outcomes(members: Sequence[Member]) -> Outcomes:
    """Return the results of the members' runs: the mean of each score, and the number of successes."""
    named = Counter(name for member in members for name in member.score)
    common = sorted(named, key=lambda name: (-named[name], name))[:MAX_SCORES]
    return Outcomes(
        scores={name: fmean(m.score[name] for m in members if name in m.score) for name in sorted(common)},
        successes=sum(member.success is True for member in members),
        failures=sum(member.success is False for member in members),
    )


def deal_batch(batch: Batch) -> tuple[tuple[Member, ...], ...]:
    """Return the members of each level-0 group: a pure function of the manifest."""
    dealt = shuffle.deal(len(batch.members), batch.copies, batch.plan.widths[0], batch.seed)
    return tuple(tuple(batch.members[i] for i in group) for group in dealt)


def make_groups(batch: Batch, manifest_offset: int, bodies: Mapping[int, Reflection]) -> tuple[Group, ...]:
    """Return the groups; ``bodies`` are the reflections by offset.

    Tags of reflections that are asked about again already count.

    Ids and sources are the manifest's: a secret that proved one may have been removed since.
    """
    if batch.plan.reason == "revoke":
        bodies = {at: body.model_copy(update={"bullet_tags": ()}) for at, body in bodies.items()}
    # Copies share one object, so that each reflection is packed once.
    copies = {
        m.offset: GroupMember(offset=m.offset, reflection=_named(bodies[m.offset], m)) for m in batch.members
    }
    return tuple(
        Group(
            plan=batch.plan,
            manifest_offset=manifest_offset,
            node_id=identity.node_id(batch.plan.batch_id, 0, index),
            index=index,
            members=tuple(copies[m.offset] for m in members),
            clusters=batch.clusters,
        )
        for index, members in enumerate(deal_batch(batch))
    )


def _named(body: Reflection, member: Member) -> Reflection:
    source = member.source or body.source
    if (body.reflection_id, body.source) == (member.reflection_id, source):
        return body
    return body.model_copy(update={"reflection_id": member.reflection_id, "source": source})


# ---- equal input, equal bytes


def canonical(message: Message) -> bytes:
    """Return the part of a message that is equal when the same input is processed again, as bytes."""
    kept = _kept(message.model_dump(mode="json"))
    return json.dumps(kept, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def _kept(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _kept(part) for name, part in value.items() if not name.endswith(LEFT_OUT_ENDINGS)}
    if isinstance(value, list):
        return [_kept(part) for part in value]
    return value
