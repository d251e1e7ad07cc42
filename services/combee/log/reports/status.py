"""The status: every playbook and branch by its newest version, and the live picture in words; pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from combee.core.evaluation.outcomes.report import VersionReport as OutcomesOfVersion
from combee.core.evaluation.outcomes.report import figures_text, outcomes_report
from combee.core.gate.canary_verdict import CanaryReport, canary_text
from combee.core.gate.gate import Gate
from combee.core.log.live.values import LiveBatch, LivePlaybook, LiveVersion, Snapshot
from combee.core.playbook.budget import budget_text, shown_tokens
from combee.core.playbook.retention import WarningKind, last_shares, warnings
from combee.core.playbook.shown import counts, counts_text
from combee.core.playbook.side_by_side import Line, Today
from combee.core.playbook.spend import today as spend_today
from combee.core.playbook.trust import trust_text
from combee.core.playbook.versions import made_by
from combee.log.reports.branch import BranchReport, branch_report
from combee.log.reports.controller import SizingReport, size_text, sizing_report
from combee.log.reports.cost import Amount, PauseReport, SpendReport, today_fields
from combee.log.reports.gate import GateReport, gate_report
from combee_schemas.base import Value, branch_in, playbook_of
from combee_schemas.control import BatchSize
from combee_schemas.outcome import OutcomeStatistics
from combee_schemas.playbook import Audit, Origin, Playbook


class LineReport(Value):
    """What every list shows of a playbook or branch."""

    name: str
    version: int
    branch: BranchReport | None
    entries: int
    """Number of entries shown to agents."""
    proposed: int

    @classmethod
    def of(cls, playbook: Playbook, lines: Mapping[str, Playbook], **more: Any) -> Self:
        """Return the report; ``lines`` has the playbook of a branch, and ``more`` the further fields."""
        return cls(
            name=playbook.name,
            version=playbook.version,
            branch=branch_report(playbook.branch, lines.get(playbook_of(playbook.name))),
            **counts(playbook),
            **more,
        )

    @property
    def entries_text(self) -> str:
        """The numbers of entries in words."""
        return counts_text(self.entries, self.proposed)


class ListedReport(LineReport):
    """One line of the list of playbooks."""

    batch_sequence: int
    origin: Origin
    labels: dict[str, int]
    """Versions by label."""
    created_at_ms: int


def listed_report(
    playbook: Playbook, lines: Mapping[str, Playbook], labels: Mapping[str, int]
) -> ListedReport:
    """Return one line of the list of playbooks; ``labels``: versions by label."""
    return ListedReport.of(
        playbook,
        lines,
        batch_sequence=playbook.batch_sequence,
        origin=playbook.origin,
        labels=dict(labels),
        created_at_ms=playbook.created_at_ms,
    )


class LearnedReport(LineReport):
    """What a playbook or a branch learned since the fork."""

    since: int
    versions: int
    batches: int
    reflections: int
    model_calls: int
    tokens: dict[str, int]
    retention: float | None
    omitted: float | None


def learned_report(line: Line, lines: Mapping[str, Playbook]) -> LearnedReport:
    """Return what a line learned; ``lines`` has the playbook of a branch."""
    learned = line.learned
    return LearnedReport.of(
        line.playbook,
        lines,
        since=line.since,
        versions=learned.versions,
        batches=learned.batches,
        reflections=learned.reflections,
        model_calls=learned.usage.calls,
        tokens=learned.usage.tokens(),
        retention=learned.retention,
        omitted=learned.omitted,
    )


class BranchStatus(LearnedReport):
    """One line of a playbook and its branches side by side."""

    in_flight: int
    spend: SpendReport
    paused: PauseReport | None


def branch_status(line: Line, lines: Mapping[str, Playbook], today: Today) -> BranchStatus:
    """Return one line of the comparison; ``lines`` has the playbook of a branch."""
    return BranchStatus(**dict(learned_report(line, lines)), **today_fields(today))


class LineToday(LineReport):
    """A playbook or branch by its newest version alone."""

    retention: float | None
    omitted: float | None
    prompt_tokens: int
    """Length of its entries in an agent's prompt."""
    today: Amount


def line_today(playbook: Playbook, lines: Mapping[str, Playbook], now_ms: int) -> LineToday:
    """Return what the newest version says of a line; ``lines`` has the playbook of a branch."""
    return LineToday.of(
        playbook,
        lines,
        **last_shares(playbook),
        prompt_tokens=sum(shown_tokens(playbook).values()),
        today=Amount.of(spend_today(playbook.spend, now_ms)),
    )


class LineStatus(LineReport):
    """A playbook or branch as ``status`` shows it."""

    made_by: str
    budget: str | None
    batch_size: int
    sizing: SizingReport | None
    in_flight: int
    spend: SpendReport
    paused: PauseReport | None
    retention: float | None
    omitted: float | None
    trust: str
    warnings: dict[WarningKind, str]
    audit: Audit | None
    outcomes: OutcomesOfVersion | None
    """Of the newest version that any run was shown."""
    gate: GateReport | None
    canary: CanaryReport | None

    @property
    def policy(self) -> str:
        """The origin of the batch size."""
        if self.branch and "batch_size" in self.branch.settings:
            return "branch"
        return self.sizing.policy if self.sizing else "start value"

    @property
    def texts(self) -> Iterator[str]:
        """The details in words: posture, fork, token budget, batch size, runs, gate, canary."""
        if self.trust:
            yield self.trust
        if self.branch:
            yield f"forked from {self.branch.text}"
        if self.budget:
            yield self.budget
        if self.sizing and self.policy not in {"configured", "branch"}:
            yield f"{size_text(self.batch_size, self.sizing)}: {self.sizing.reason}"
        if self.outcomes:
            yield f"version {self.outcomes.version}: {figures_text(self.outcomes)}"
        if self.gate:
            yield self.gate.text
        if self.canary:
            yield canary_text(self.canary)


def line_status(
    playbook: Playbook,
    lines: Mapping[str, Playbook],
    today: Today,
    decided: BatchSize | None,
    *,
    budget_tokens: int,
    outcomes: OutcomeStatistics | None,
    gate: Gate | None,
    canary: CanaryReport | None,
) -> LineStatus:
    """Return the status of one line; ``budget_tokens`` is the configured token budget."""
    runs = outcomes_report("", outcomes, playbook.version).versions
    return LineStatus.of(
        playbook,
        lines,
        made_by=made_by(playbook),
        budget=budget_text(playbook, budget_tokens) or None,
        batch_size=today.own.batch_size,
        sizing=sizing_report(decided),
        **today_fields(today),
        **last_shares(playbook),
        trust=trust_text(playbook),
        warnings=warnings(playbook),
        audit=playbook.audit,
        outcomes=runs[-1] if runs else None,
        gate=gate_report(gate) if gate else None,
        canary=canary,
    )


# ---- the live picture


class DeploymentReport(Value):
    """Counts of the whole deployment."""

    playbooks: int
    lessons: int
    waiting: int
    """Reflections in windows."""
    in_flight: int
    """Batches."""
    dead_letters: int


def deployment_report(now: Snapshot, playbooks: Iterable[Playbook]) -> DeploymentReport:
    """Return the deployment's counts; branches are not counted, and share their playbook's waiting input."""
    books = [book for book in playbooks if not branch_in(book.name)]
    return DeploymentReport(
        playbooks=len(books),
        lessons=sum(counts(book)["entries"] for book in books),
        waiting=sum(book.waiting for book in now.playbooks if not branch_in(book.name)),
        in_flight=sum(batch.version is None for batch in now.batches),
        dead_letters=now.dead_letters,
    )


def progress_text(batch: LiveBatch) -> str:
    """Return the progress of a batch."""
    if batch.version:
        return f"became version {batch.version}"
    return f"{sum(node.is_settled for node in batch.nodes)} of {len(batch.nodes)} nodes done"


def newest_versions(playbooks: Iterable[LivePlaybook], most: int) -> list[tuple[str, LiveVersion]]:
    """Return the last versions of each playbook, ``most`` at most, with its name; the newest of all come first."""
    made = [(playbook.name, version) for playbook in playbooks for version in playbook.versions[-most:]]
    return sorted(made, key=lambda pair: pair[1].at_ms, reverse=True)
