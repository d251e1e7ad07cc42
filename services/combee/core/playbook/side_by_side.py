"""A playbook and its branches side by side: order, batch sizes, and spend; pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from combee.core.names.tenants import Tenants, tenant_of
from combee.core.playbook.pausing import pause_of
from combee.core.playbook.retention import shares, total
from combee.core.playbook.spend import LineSpend, Pause, SpendPolicy, pause, today
from combee_schemas.base import NOTHING_SPENT, Usage, playbook_of
from combee_schemas.playbook import Playbook, Spend


def place(line: str) -> tuple[str, str]:
    """Return the sort key of lines: a playbook, then its branches, then the next playbook."""
    return playbook_of(line), line


def in_order(lines: Iterable[str]) -> list[str]:
    """Return lines sorted so that branches follow their playbook."""
    return sorted(lines, key=place)


def batch_size_of(playbook: Playbook, decided: int | None, default: int) -> int:
    """Return the batch size of a line; ``decided`` by the controller."""
    own = playbook.branch.settings.batch_size if playbook.branch else None
    return own or decided or default


Lines = Mapping[str, LineSpend]
"""Spend and batches in flight of one playbook's lines, ended branches included: they share one cap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Today:
    """A line's spend today, its limit, and why its next batch waits."""

    own: LineSpend
    spend: Spend
    together: Spend | None
    """``tokens`` and ``cost`` of all lines under the cap; None: it is the only line."""
    cap: SpendPolicy
    paused: Pause | None


def today_of(line: str, lines: Lines, policy: SpendPolicy, tenants: Tenants, now_ms: int) -> Today:
    """Return a line's spend today; ``lines`` share its cap, which comes from them if the policy has none."""
    own, others = lines[line], [other for name, other in lines.items() if name != line]
    for known in (own, *others):
        policy = policy.or_recorded(known.spend)
    spend, *spent = (today(known.spend, now_ms) for known in (own, *others))
    together = {name: sum(getattr(known, name) for known in (spend, *spent)) for name in ("tokens", "cost")}
    sizes = {"in_flight": own.in_flight, "batch_size": own.batch_size}
    return Today(
        own=own,
        spend=spend,
        together=spend.model_copy(update=together) if spent else None,
        cap=policy,
        paused=pause_of(
            {name: lines[name].paused for name in (line, playbook_of(line)) if name in lines}, now_ms
        )
        or tenants.pause(tenant_of(line), now_ms)
        or pause(own.spend, policy, **sizes, now_ms=now_ms, others=others),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LineTotals:
    """Input and cost of some versions of a line."""

    versions: int = 0
    batches: int = 0
    reflections: int = 0
    usage: Usage = NOTHING_SPENT
    """Usage of the batches' calls; reflecting is counted on the playbook alone."""
    retention: float | None = None
    """Share of the reflections that were new or known; None: there were none."""
    omitted: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A playbook or a branch in the comparison."""

    playbook: Playbook
    """The newest version."""
    since: int
    """The playbook's version at its first fork that is still open; of a branch, the one at its own."""
    learned: LineTotals
    """Learning since ``since``."""


def learned(versions: Iterable[Playbook]) -> LineTotals:
    """Return the input and cost of versions; reflections asked about again were counted before."""
    made = list(versions)
    batches = [
        version
        for version in made
        if version.batch and version.reflections and version.batch.plan.reason != "revoke"
    ]
    reflections = sum(version.reflections for version in batches)
    usage = sum((version.usage for version in made), NOTHING_SPENT)
    audited = total(version.audit for version in batches if version.audit)
    return LineTotals(
        versions=len(made),
        batches=len(batches),
        reflections=reflections,
        usage=usage,
        **shares(audited),
    )
