"""The decision about one record of publish; for an update, the next version of its playbook; pure."""

from combee.adapters.ports import PoisonError
from combee.core.batching.planned import Manifest, forgery
from combee.core.playbook import executing, versions
from combee.core.playbook.branching import with_revocations_of
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
from combee.publish.decide.command import versions_after
from combee.publish.decide.gate import decide_promotion, decide_review, decide_verdict
from combee_schemas.command import Command, CommandKind
from combee_schemas.gate import Verdict
from combee_schemas.plan import Branch
from combee_schemas.scan import Update

NOT_OURS: frozenset[CommandKind] = frozenset({"flush", "consolidate", "branch"})
"""Commands that shuffle executes."""


def decide(basis: Basis, message: Update | Command | Verdict, offset: int) -> PublishDecision | WaitsFor:
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
        case Verdict():
            return decide_verdict(basis, message)
        case Command(kind=kind):
            if kind in NOT_OURS or executing.is_executed(
                basis.state.current(message.playbook), message, offset
            ):
                return SKIP
            if kind == "promote":
                return decide_promotion(basis, message, offset)
            if kind in {"approve", "reject"}:
                return decide_review(basis, message, offset)
            return PublishDecision(versions=versions_after(basis, message, offset))


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
    is_clean = set(barred.revoked) <= set(forked.revoked)
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
