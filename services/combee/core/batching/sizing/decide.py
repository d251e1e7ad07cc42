"""The controller as a fold: current decision and new version → next decision. The decision is the whole state."""

from collections.abc import Callable

from combee.core.batching.sizing import reasons
from combee.core.batching.sizing.keep_up import (
    Pipeline,
    SizeStep,
    arrivals_after,
    demand,
    measured_keeps_up,
    step,
)
from combee.core.batching.sizing.plateau import (
    MAX_UNFILLED,
    PowerLaw,
    fitted,
    missing,
    observed,
    plateau,
    profile_again,
    slowness_after,
)
from combee.core.batching.sizing.policy import Iteration, SizingPolicy
from combee_schemas.control import BatchSize

FILLS = 2
"""A candidate that was given up because it did not fill is retried once this many of its batches wait."""


def decide(standing: BatchSize | None, seen: Iteration, policy: SizingPolicy) -> BatchSize:
    """Return the decision after a version; the same object if the version changes nothing.

    Versions may be skipped, never reordered; a version already taken into account is ignored.
    """
    if policy.kind == "configured":
        return _configured(standing, seen, policy)
    state = standing
    if state is None or (state.policy, state.candidates) != (policy.kind, policy.candidates):
        state = _begin(standing, seen, policy)
    if not seen.is_batch or seen.sequence <= state.sequence:
        return state
    state = state.model_copy(update={"sequence": seen.sequence, **arrivals_after(state, seen)})
    return (_profile if state.phase == "profiling" else _watch)(state, seen, policy)


def _configured(standing: BatchSize | None, seen: Iteration, policy: SizingPolicy) -> BatchSize:
    if standing and (standing.policy, standing.batch_size) == ("configured", policy.configured):
        return standing
    return BatchSize(
        playbook=seen.playbook,
        batch_size=policy.configured,
        reason=reasons.CONFIGURED,
        sequence=standing.sequence if standing else 0,
    )


def _begin(standing: BatchSize | None, seen: Iteration, policy: SizingPolicy) -> BatchSize:
    return BatchSize(
        playbook=seen.playbook,
        batch_size=policy.start,
        reason=reasons.STARTING,
        policy=policy.kind,
        phase="profiling",
        candidates=policy.candidates,
        sequence=standing.sequence if standing else 0,
    )


def _profile(state: BatchSize, seen: Iteration, policy: SizingPolicy) -> BatchSize:
    """Profile the candidates in turn, smallest first; give up on a candidate that does not fill.

    Keep-up skips candidates larger than one measured to keep up.
    """
    candidate, observations = state.batch_size, observed(state, seen)
    is_missed = seen.asked == candidate and observations == state.observations
    state = state.model_copy(update={"observations": observations, "unfilled": state.unfilled + is_missed})
    left = missing(state)
    is_enough = policy.kind == "keep-up" and measured_keeps_up(state, policy, below=min(left, default=0))
    if not left or state.unfilled >= MAX_UNFILLED or is_enough:
        return _settle(state, policy)
    return _candidate(state, left[0], reasons.profiling)


def _candidate(state: BatchSize, candidate: int, reason: Callable[[BatchSize], str]) -> BatchSize:
    unfilled = state.unfilled if candidate == state.batch_size else 0
    asked = state.model_copy(update={"phase": "profiling", "batch_size": candidate, "unfilled": unfilled})
    return asked.model_copy(update={"reason": reason(asked)})


def _settle(state: BatchSize, policy: SizingPolicy) -> BatchSize:
    settled = state.model_copy(
        update={
            "batch_size": policy.smallest,
            "phase": "settled",
            "unfilled": 0,
            "settled_for": 0,
            "slowness": 1.0,
            "calm": 0,
        }
    )
    return _choose(settled, fitted(settled), policy)


def _watch(state: BatchSize, seen: Iteration, policy: SizingPolicy) -> BatchSize:
    """Watch after a choice: profile candidates that were out of reach, or all of them after delays have drifted."""
    fit = fitted(state)
    slowness = slowness_after(state.slowness, fit, seen)
    state = state.model_copy(update={"settled_for": state.settled_for + 1, "slowness": slowness})
    if why := profile_again(state, fit):
        again = state.model_copy(update={"observations": (), "unfilled": 0})
        return _candidate(again, policy.smallest, lambda _: why)
    left = missing(state)
    if left and seen.waiting >= FILLS * left[0]:
        return _candidate(state, left[0], reasons.profiling)
    return _choose(state, fit, policy)


def _choose(state: BatchSize, fit: PowerLaw | None, policy: SizingPolicy) -> BatchSize:
    flat = plateau(fit, smallest=policy.smallest, most=policy.most)
    numbers = {**reasons.numbers(state, fit, policy), "plateau": flat}
    if fit is None or fit.alpha <= 0 or state.policy == "plateau":
        reason = reasons.flattened(state, fit, flat, policy)
        return state.model_copy(update={"batch_size": flat, "numbers": numbers, "reason": reason})
    return _keep_up(state, fit, flat, numbers, policy)


def _keep_up(
    state: BatchSize, fit: PowerLaw, flat: int, numbers: dict[str, float], policy: SizingPolicy
) -> BatchSize:
    pipeline = Pipeline(fit=fit, slowness=state.slowness, in_flight=policy.in_flight)
    rate, size = state.arrivals_per_s, state.batch_size
    wanted = demand(pipeline, rate, waiting=state.waiting, size=size)
    if state.settled_for:
        chosen = step(pipeline, wanted, standing=size, calm=state.calm, least=policy.smallest, most=flat)
    else:
        size = pipeline.smallest_for(wanted.needed_per_s, least=policy.smallest, most=flat)
        chosen = SizeStep(size=size, calm=0)
    state = state.model_copy(update={"batch_size": chosen.size, "calm": chosen.calm})
    numbers |= {"needed_per_s": wanted.needed_per_s}
    numbers |= {"capacity_per_s": pipeline.capacity_per_s(chosen.size)}
    return state.model_copy(update={"numbers": numbers, "reason": reasons.kept_up(state, numbers, policy)})
