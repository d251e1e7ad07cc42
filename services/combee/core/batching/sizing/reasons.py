"""The numbers behind a decision, and the decision in words."""

from collections.abc import Mapping

from combee.core.batching.sizing.keep_up import CALM, HEADROOM
from combee.core.batching.sizing.plateau import EPOCH, TAU_SHARE, PowerLaw, tau
from combee.core.batching.sizing.policy import SizingPolicy
from combee_schemas.control import BatchSize

CONFIGURED = "configured: COMBEE_BATCH_SIZE"
STARTING = "the start value, until a batch is applied"
MEND = "add scan workers, raise COMBEE_LLM_CONCURRENCY or COMBEE_MAX_INFLIGHT_BATCHES"


def numbers(state: BatchSize, fit: PowerLaw | None, policy: SizingPolicy) -> dict[str, float]:
    """Return the numbers behind a decision; unknown ones are left out."""
    known = {"arrivals_per_s": state.arrivals_per_s} if state.arrivals_per_s else {}
    if fit is not None:
        known |= {"A": fit.a, "alpha": fit.alpha, "r_squared": fit.r_squared}
        known |= {"tau": tau(fit, policy.smallest), "slowness": state.slowness}
    return known


def profiling(state: BatchSize) -> str:
    """Return which candidate is being measured."""
    done, of = len(state.observations), len(state.candidates)
    return f"profiling: one full batch of {state.batch_size}; {done} of {of} candidates measured"


def flattened(state: BatchSize, fit: PowerLaw | None, flat: int, policy: SizingPolicy) -> str:
    """Return where the power law has flattened, or why the smallest candidate stands."""
    unmeasured = [
        candidate
        for candidate in state.candidates
        if candidate not in {o.batch_size for o in state.observations}
    ]
    why = "did not fill" if fit is None or policy.kind == "plateau" else "were not measured"
    unfilled = f"; batches of {unmeasured[0]} {why}" if unmeasured else ""
    if fit is None:
        measured = f"{len(state.observations)} of {len(state.candidates)} candidates measured, two are needed"
        return f"the smallest candidate, {flat}: {measured}{unfilled}"
    law = f"T(b) = {fit.a:,.4g} · b^{-fit.alpha:.2f} s per {EPOCH:,} reflections, R² {fit.r_squared:.2f}{unfilled}"
    if fit.alpha <= 0:
        return f"the smallest candidate, {flat}: larger batches take no less time ({law})"
    bound = " (the largest that is chosen)" if flat == policy.most else ""
    return f"beyond {flat}{bound} larger batches save little: slope below {TAU_SHARE:.1%} of the steepest ({law})"


def kept_up(state: BatchSize, numbers: Mapping[str, float], policy: SizingPolicy) -> str:
    """Return whether a size keeps up with the arrivals."""
    size, limit = state.batch_size, int(numbers["plateau"])
    capacity, needed = numbers["capacity_per_s"], numbers["needed_per_s"]
    if not state.arrivals_per_s:
        return f"batches of {size}: it is not known yet how much arrives"
    waiting = f", {state.waiting} wait" if state.waiting > size else ""
    manages = (
        f"{state.arrivals_per_s:.3g} reflections/s arrive{waiting}; batches of {size} manage {capacity:.3g}/s"
    )
    if capacity < HEADROOM * state.arrivals_per_s and size >= limit:
        named = "the largest that is chosen" if limit == policy.most else "the plateau"
        short = "too few" if capacity < state.arrivals_per_s else "with too little head-room"
        return f"{manages}, {short}, and {named} is the limit: {MEND}"
    aim = f"{manages}; the aim is {needed:.3g}/s (head-room × {HEADROOM:g})"
    if capacity < needed:
        return f"{aim}: larger once half of the head-room is gone"
    return f"{aim}: smaller if the next {CALM - state.calm} batches need no more" if state.calm else aim
