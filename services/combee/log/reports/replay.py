"""Runs of a replay's variants, compared with the original; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from combee.core.evaluation.intervals import paired, share
from combee.core.evaluation.scoring import Points
from combee.core.log.replaying.outcome import compared, spent
from combee.core.playbook.retention import total
from combee_schemas.base import Value
from combee_schemas.playbook import Audit, Playbook


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One run, or the original."""

    variant: str
    seed: int | None
    prefix: str
    versions: Sequence[Playbook]
    newest: Playbook
    staleness_s: float | None
    seconds: float | None
    points: Mapping[str, Points] | None
    """By held-out question; None: none were asked."""


SCORES = {f"{figure}{bound}" for figure in ("score", "difference") for bound in ("", "_low", "_high")}


class Change(Value):
    """An entry whose content changed."""

    before: str
    after: str


class EntriesReport(Value):
    """The entries of a run's newest version, compared with the original's."""

    count: int
    kept: int
    added: tuple[str, ...]
    gone: tuple[str, ...]
    changed: tuple[Change, ...]


class RunReport(Value):
    """One run; the score is set where questions were asked, the difference where the original was asked too."""

    variant: str
    seed: int | None
    prefix: str
    batches: int
    reflections: int
    entries: EntriesReport
    audit: Audit
    model_calls: int
    reused_calls: int
    tokens: dict[str, int]
    reused_tokens: int
    seconds: float | None
    staleness_s: float | None
    score: float = 0.0
    score_low: float = 0.0
    score_high: float = 0.0
    difference: float = 0.0
    difference_low: float = 0.0
    difference_high: float = 0.0

    def fields(self) -> dict[str, Any]:
        """Return the documented shape, without the figures that are not set."""
        return self.model_dump(mode="json", exclude=SCORES - self.model_fields_set)

    @property
    def is_scored(self) -> bool:
        """Whether questions were asked."""
        return "score" in self.model_fields_set

    @property
    def is_compared(self) -> bool:
        """Whether the original was asked the same questions."""
        return "difference" in self.model_fields_set


def run_report(run: Replayed, original: Replayed) -> RunReport:
    """Return the report on one run."""
    usage = spent(run.versions)
    entries = compared(original.newest, run.newest)
    scored: dict[str, float] = {}
    if run.points is not None:
        score = share(run.points)
        scored = {"score": score.mean, "score_low": score.low, "score_high": score.high}
        if original.points is not None and run is not original:
            apart = paired(run.points, original.points)
            scored |= {
                "difference": apart.mean,
                "difference_low": apart.low,
                "difference_high": apart.high,
            }
    return RunReport(
        variant=run.variant,
        seed=run.seed,
        prefix=run.prefix,
        batches=len(run.versions),
        reflections=sum(version.reflections for version in run.versions),
        entries=EntriesReport(
            count=len(run.newest.entries),
            kept=entries.kept,
            added=entries.added,
            gone=entries.gone,
            changed=tuple(Change(before=before, after=after) for before, after in entries.changed),
        ),
        audit=total(version.audit for version in run.versions if version.audit),
        model_calls=usage.calls,
        reused_calls=usage.reused,
        tokens=usage.tokens(),
        reused_tokens=usage.reused_tokens,
        seconds=None if run.seconds is None else _rounded(run.seconds),
        staleness_s=None if run.staleness_s is None else _rounded(run.staleness_s),
        **{name: _rounded(figure) for name, figure in scored.items()},
    )


def _rounded(value: float) -> float:
    return round(value, 4)
