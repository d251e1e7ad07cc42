"""Batches of a replay, cut from the recorded reflections, and their maximum cost."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from combee.core.batching.shuffle import plan_shape
from combee_schemas.base import Usage
from combee_schemas.batch import Batch
from combee_schemas.plan import PlanSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A reflection that counted: its place, time, size and batch."""

    offset: int
    reflection_id: str
    at_ms: int
    size: int
    sequence: int


def as_batched(arrivals: Iterable[Arrival]) -> list[tuple[Arrival, ...]]:
    """Return the recorded batches, without excluded reflections."""
    batches: dict[int, list[Arrival]] = {}
    for arrival in arrivals:
        batches.setdefault(arrival.sequence, []).append(arrival)
    return [tuple(batches[sequence]) for sequence in sorted(batches)]


def cut_anew(arrivals: Iterable[Arrival], *, batch_size: int, max_wait_s: float) -> list[tuple[Arrival, ...]]:
    """Return the batches of windows that close when full, or ``max_wait_s`` after their first arrival."""
    batches: list[tuple[Arrival, ...]] = []
    window: list[Arrival] = []
    for arrival in sorted(arrivals, key=lambda arrival: arrival.offset):
        if window and arrival.at_ms > window[0].at_ms + max_wait_s * 1000:
            batches.append(tuple(window))
            window = []
        window.append(arrival)
        if len(window) == batch_size:
            batches.append(tuple(window))
            window = []
    return [*batches, tuple(window)] if window else batches


def is_cut_as(planned: Iterable[Sequence[Arrival]], made: Iterable[Batch]) -> bool:
    """Return whether the batches that a replay ``made`` so far end where ``planned`` ones do."""
    wanted = {batch[-1].reflection_id for batch in planned}
    made = [batch for batch in made if batch.members]
    cut = {member.reflection_id for batch in made for member in batch.members}
    # A window may also have closed before its end, because it was too large for one batch.
    asked = {batch.members[-1].reflection_id for batch in made if batch.plan.reason == "flush"}
    return asked <= wanted and wanted & cut <= {batch.members[-1].reflection_id for batch in made}


def closed_at_ms(batch: Sequence[Arrival], *, batch_size: int, max_wait_s: float) -> float:
    """Return when the window of a batch would have closed."""
    last = max(arrival.at_ms for arrival in batch)
    full = len(batch) >= batch_size
    return last if full else max(last, min(arrival.at_ms for arrival in batch) + max_wait_s * 1000)


SHAPING = {"copies", "groups", "small_batches"}
"""Settings that act by the shape of a batch alone."""


def is_same_work(
    batches: Sequence[Sequence[Arrival]],
    settings: PlanSettings,
    others: Sequence[Sequence[Arrival]],
    other_settings: PlanSettings,
) -> bool:
    """Return whether both make the same calls: the same batches and prompts, and each batch in the same shape."""
    if list(map(list, batches)) != list(map(list, others)):
        return False
    if settings.model_dump(exclude=SHAPING) != other_settings.model_dump(exclude=SHAPING):
        return False
    return all(_form(batch, settings) == _form(batch, other_settings) for batch in batches)


def _form(batch: Sequence[Arrival], settings: PlanSettings) -> tuple[int, tuple[int, ...]]:
    shape = plan_shape([arrival.size for arrival in batch], 0, settings)
    return shape.copies, shape.widths


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Cost of a replay without any recorded answer."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cached_tokens: int = 0

    def __add__(self, other: "Estimate") -> "Estimate":
        return Estimate(
            calls=self.calls + other.calls,
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_out=self.tokens_out + other.tokens_out,
            cached_tokens=self.cached_tokens + other.cached_tokens,
        )


def estimate(batches: Sequence[Sequence[Arrival]], settings: PlanSettings, before: Usage) -> Estimate:
    """Return the cost of batches under these settings, at ``before``'s tokens per call."""
    calls = sum(sum(plan_shape([arrival.size for arrival in batch], 0, settings).widths) for batch in batches)
    calls_before = max(1, before.calls)
    return Estimate(
        calls=calls,
        tokens_in=calls * before.tokens_in // calls_before,
        tokens_out=calls * before.tokens_out // calls_before,
        cached_tokens=calls * before.cached_tokens // calls_before,
    )


def median_staleness_s(
    batches: Sequence[Sequence[Arrival]], closed: Sequence[float], seconds: Mapping[int, float]
) -> float | None:
    """Return the median time from a reflection's arrival to the version with it.

    ``closed``: when each batch's window closes (ms); ``seconds``: the duration of each batch in order. A batch waits
    for the one before.
    """
    waited: list[float] = []
    free_ms = 0.0
    for place, batch in enumerate(batches):
        if place not in seconds:
            continue
        free_ms = max(free_ms, closed[place]) + seconds[place] * 1000
        waited += ((free_ms - arrival.at_ms) / 1000 for arrival in batch)
    waited.sort()
    return waited[len(waited) // 2] if waited else None
