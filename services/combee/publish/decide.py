"""Publish's decision about a record: the records of one transaction, or what it must wait for; pure.

``decide`` answers for each record; for an update the answer is its version, or what it waits for. ``completed`` then
adds what follows from any version: marks, gates and candidates. It is a function of its own, so that reading for a
gate does not apply the batch again.
"""

from dataclasses import replace

from combee.adapters.ports import PoisonError
from combee.core.batching.planned import Manifest, forgery
from combee.core.gate import gate as gates
from combee.core.gate.canary import with_canary
from combee.core.gate.gate import Gate
from combee.core.playbook import executing, versions
from combee.core.playbook.lineage.branching import with_revocations_of
from combee.core.playbook.versions import empty
from combee.publish.basis import (
    SKIP,
    Basis,
    Bodies,
    EvidenceLeft,
    Lost,
    ManifestAt,
    PublishDecision,
    WaitsFor,
)
from combee.publish.commands import versions_after
from combee.publish.gate import decide_promotion, decide_review, decide_verdict
from combee_schemas.command import Command, CommandKind
from combee_schemas.gate import Verdict
from combee_schemas.plan import Branch
from combee_schemas.playbook import PRODUCTION, Playbook, label_key
from combee_schemas.scan import Update

Message = Update | Command | Verdict
NOT_OURS: frozenset[CommandKind] = frozenset({"flush", "consolidate", "branch"})
"""Commands that shuffle executes."""


def decide(basis: Basis, message: Message, offset: int) -> PublishDecision | WaitsFor:
    """Return what becomes of a message, which stands at ``offset``.

    Raises
    ------
    UnreadError
        If the decision rests on something that is still to be read.
    PoisonError, RefusedError, InapplicableError
        If it cannot have an effect: it becomes a dead letter.
    """
    match message:
        case Update():
            return decide_update(basis, message)
        case Command():
            return decide_command(basis, message, offset)
        case Verdict():
            return decide_verdict(basis, message)


# ---- updates


def decide_update(basis: Basis, update: Update) -> PublishDecision | WaitsFor:
    """Return the decision about an update, or what it has to wait for.

    Raises
    ------
    UnreadError
        If the decision rests on something that is still to be read.
    PoisonError, InapplicableError
        If its manifest did not plan it, or it cannot be applied: a fork, because there is no such version.
    """
    name, sequence, state = update.plan.playbook, update.plan.sequence, basis.state
    after = sequence - state.current(name).batch_sequence
    if after <= 0:
        return SKIP
    manifest = basis.read(ManifestAt(state.number, update.manifest_offset, basis.may_wait))
    if manifest == "to come":
        return "manifest"
    if forged := forgery(update, manifest):
        raise PoisonError(forged)
    if (name, sequence) in state.waiting:
        return SKIP
    if after > 1:
        return "predecessor"
    return next_version(basis, update, manifest)


def next_version(basis: Basis, update: Update, manifest: Manifest | None) -> PublishDecision:
    """Return the version made by an update whose turn it is."""
    if update.plan.branch is not None:
        return _fork(basis, update, update.plan.branch)
    lost = _lost(basis, update, manifest)
    playbook = basis.current(update.plan.playbook)
    if update.plan.reason == "revoke":
        # An entry's evidence must not count a second time, however much of it there is.
        playbook = basis.read(EvidenceLeft(playbook.name, playbook))
    version = versions.after_update(
        playbook,
        update,
        budget_tokens=basis.rules.budget_tokens,
        now_ms=basis.now_ms,
        spending=basis.rules.spending,
    )
    return PublishDecision(versions=(version,), lost=lost)


def _fork(basis: Basis, update: Update, branch: Branch) -> PublishDecision:
    """Return the version with which a branch begins, made from a version of its playbook."""
    line, playbook = basis.current(update.plan.playbook), basis.current(branch.of)
    forked = basis.with_revoked(basis.retained_version(playbook, branch.version))
    barred = with_revocations_of(playbook, line)
    rules, known = ({each.rule for each in line.revocations} for line in (barred, forked))
    is_clean = rules <= known and set(barred.revoked) <= set(forked.revoked)
    version = executing.after_fork(
        line,
        update,
        forked,
        playbook=playbook,
        recomputed=None if is_clean else basis.remainder(forked, barred),
        budget_tokens=basis.rules.budget_tokens,
        now_ms=basis.now_ms,
    )
    return PublishDecision(versions=(version,))


def _lost(basis: Basis, update: Update, manifest: Manifest | None) -> tuple[Lost, ...]:
    """Return the reflections of which no copy got through."""
    lost = {seen.offset: seen for seen in update.result.seen if not seen.ok}
    if not lost:
        return ()
    records = basis.read(Bodies(basis.state.number, tuple(sorted(lost))))
    # Not the record's headers, which anybody can write.
    attempts = manifest.attempts if manifest else {}
    why = f"no copy survived batch {update.plan.batch_id}: {update.result.reason or 'see its partials'}"
    return tuple(
        Lost(
            record=record,
            seen=lost[offset],
            attempt=attempts.get(offset, 0),
            reason=why,
            playbook=update.plan.playbook,
        )
        for offset, record in sorted(records.items())
    )


# ---- what follows from any version


def completed(basis: Basis, decision: PublishDecision) -> PublishDecision:
    """Return a decision with what follows from its versions and gates: marks, new gates and new candidates.

    Raises
    ------
    UnreadError
        If it rests on something that is still to be read.
    """
    state, rules = basis.state, basis.rules
    newest, written = dict[str, Playbook](), list[Playbook]()
    for version in decision.versions:
        name, gate = version.name, state.gate(version.name)
        has_judges = bool(rules.gates.judges_of(name))
        named = versions.naming_news(version, basis.current(name).revoked)
        newest[name], marked = named[-1], {"gated": has_judges or gate is not None}
        written += [versions.fitted(part.model_copy(update=marked)) for part in named]
        if version.origin == "delete" or name in decision.gates:
            continue
        if gate is not None:
            # A judge could accept what a person has taken back.
            is_stale = version.origin in {"revoke", "rollback"} or (
                version.origin != "batch"
                and gates.takes_back(_production(basis, gate, version), state.current(name), version)
            )
            decision = decision.with_gate(name, replace(gate, candidate=None) if is_stale else gate)
        elif has_judges:
            decision = _opened(basis, name, decision)
    judged = {
        name: with_canary(
            _with_candidate(basis, gate, newest.get(name) or state.current(name)),
            rules.gates.canary,
            now_ms=basis.now_ms,
        )
        for name, gate in decision.gates.items()
    }
    return replace(
        decision,
        versions=tuple(written),
        revoked={version.name: version.revoked for version in decision.versions},
        gates=judged,
    )


def decide_start(basis: Basis) -> PublishDecision:
    """Return the gates that are turned on or off where the setting has changed since the last start."""
    decision, state = SKIP, basis.state
    for name in state.live_playbooks():
        judges, gate = basis.rules.gates.judges_of(name), state.gate(name)
        if gate is None and judges:
            decision = _opened(basis, name, decision)
        elif gate is not None and judges is not None and gate.judges != judges:
            changed = gates.with_judges(gate, judges)
            if gates.conclusion(changed) == "accepted":
                decision = decision.with_gate(name, *gates.decided(changed, "accepted", now_ms=basis.now_ms))
            else:
                decision = decision.with_gate(name, changed)
    return decision


def _opened(basis: Basis, name: str, decision: PublishDecision) -> PublishDecision:
    state, judges = basis.state, basis.rules.gates.judges_of(name) or ()
    known = state.labels.get(label_key(name, PRODUCTION))
    gate, opening = gates.opened(name, judges, known, state.playbooks.get(name), now_ms=basis.now_ms)
    return decision.with_gate(name, gate, opening)


def _with_candidate(basis: Basis, gate: Gate, newest: Playbook) -> Gate:
    if gate.candidate is not None or not gate.judges:
        return gate
    return gates.with_candidate(gate, newest, _production(basis, gate, newest), now_ms=basis.now_ms)


def _production(basis: Basis, gate: Gate, newest: Playbook) -> Playbook:
    if gate.production.version == newest.version:
        return newest
    return basis.version(newest.name, gate.production.version) or empty(newest.name)


# ---- commands


def decide_command(basis: Basis, command: Command, offset: int) -> PublishDecision:
    """Return what a person's command makes: versions, or a gate or label that it moves.

    Raises
    ------
    UnreadError
        If the decision rests on something that is still to be read.
    PoisonError, RefusedError, InapplicableError
        If it cannot be executed on the playbook as it is.
    """
    if command.kind in NOT_OURS:
        return SKIP
    if executing.is_executed(basis.state.current(command.playbook), command, offset):
        return SKIP
    if command.kind == "promote":
        return decide_promotion(basis, command, offset)
    if command.kind in {"approve", "reject"}:
        return decide_review(basis, command, offset)
    return PublishDecision(versions=versions_after(basis, command, offset))
