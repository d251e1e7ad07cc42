"""The decision about one record of publish, by its type; pure."""

from combee.core.playbook.executing import is_executed
from combee.publish.decide.basis import Basis
from combee.publish.decide.command import decide_command
from combee.publish.decide.decision import SKIP, PublishDecision, WaitsFor
from combee.publish.decide.gate import decide_promotion, decide_review, decide_verdict
from combee.publish.decide.update import decide_update
from combee_schemas.command import Command, CommandKind
from combee_schemas.gate import Verdict
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
            if kind in NOT_OURS or is_executed(basis.state.current(message.playbook), message, offset):
                return SKIP
            if kind == "promote":
                return decide_promotion(basis, message, offset)
            if kind in {"approve", "reject"}:
                return decide_review(basis, message, offset)
            return decide_command(basis, message, offset)
