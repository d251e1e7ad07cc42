"""The first version of a branch, from a version of its playbook; pure."""

from combee.core.playbook import executing
from combee.core.playbook.branching import with_revocations_of
from combee.publish.decide.basis import Basis
from combee.publish.decide.decision import Decision
from combee_schemas.plan import Branch
from combee_schemas.scan import Update


def decide_fork(basis: Basis, update: Update, branch: Branch) -> Decision:
    """Return the version with which a branch begins.

    Raises
    ------
    UnreadError
        If the decision rests on something that is still to be read.
    PoisonError, InapplicableError
        If there is no such version, or it is of another playbook.
    """
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
    return Decision(versions=(version,))
