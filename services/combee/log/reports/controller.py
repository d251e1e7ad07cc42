"""The controller's decision about a batch size, with its measured delays and their fit; pure."""

from combee.core.batching.sizing.plateau import PowerLaw
from combee.core.batching.sizing.reasons import STARTING
from combee_schemas.base import Value
from combee_schemas.control import BatchSize, Observation
from combee_schemas.plan import Branch


class SizingReport(Value):
    """How a line's batch size was chosen."""

    policy: str
    phase: str
    reason: str
    decided_at_ms: int


class Fit(Value):
    """The fitted law of the delays."""

    a: float
    alpha: float
    r_squared: float


class ControllerReport(SizingReport):
    """A whole decision."""

    playbook: str
    batch_size: int
    numbers: dict[str, float]
    observations: tuple[Observation, ...]
    fit: Fit | None
    """None: the delays follow no law yet."""
    waiting: int


def sizing_report(decided: BatchSize | None) -> SizingReport | None:
    """Return how a line's batch size was chosen; None: nobody has decided yet."""
    return SizingReport.model_validate(dict(decided)) if decided else None


def controller_report(decided: BatchSize, law: PowerLaw | None) -> ControllerReport:
    """Return the report on a decision."""
    fit = Fit(a=law.a, alpha=law.alpha, r_squared=law.r_squared) if law else None
    return ControllerReport.model_validate({**dict(decided), "fit": fit})


def size_text(batch_size: int, sizing: SizingReport) -> str:
    """Return a size and how it was chosen, in few words."""
    return f"batches of {batch_size} ({sizing.policy}, {sizing.phase})"


def why_text(branch: Branch | None, reason: str) -> str:
    """Return the reason for a line's batch size; ``reason``: the controller's, empty: it gave none."""
    is_own = branch is not None and branch.settings.batch_size is not None
    return "the branch's own" if is_own else reason or STARTING
