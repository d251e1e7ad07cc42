"""Summaries of all playbooks: the newest version, the last versions without entries, the batch size."""

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from combee.core.log.live.values import LivePlaybook, LiveSize, LiveVersion
from combee.core.log.live.windows import Windows
from combee.core.names.tenants import Tenants
from combee.core.playbook.retention import last_shares, warnings
from combee.core.playbook.shown import counts
from combee.core.playbook.side_by_side import batch_size_of, place, today_of
from combee.core.playbook.spend import LineSpend, SpendPolicy
from combee.core.playbook.versions import version_summary
from combee_schemas.base import playbook_of
from combee_schemas.control import BatchSize
from combee_schemas.playbook import PauseOrder, Playbook, Spend

KEPT = 200
"""Maximum number of versions and decisions kept per playbook."""
MAX_WITHOUT_VERSION = 2_000
"""Maximum number of lines without a version, last changed first: anybody can invent a name."""


@dataclass(slots=True)
class _Row:
    newest: LivePlaybook
    sizes: deque[LiveSize] = field(default_factory=lambda: deque(maxlen=KEPT))


class PlaybookSummaries:
    """The summaries by playbook."""

    def __init__(self, batch_size: int, spending: SpendPolicy, tenants: Tenants) -> None:
        self._batch_size = batch_size
        self._spending = spending
        self._tenants = tenants
        self._rows: dict[str, _Row] = {}
        self._without_version: OrderedDict[str, None] = OrderedDict()
        """Lines without a version, the last changed at the end."""
        self._spent: dict[str, dict[str, tuple[Spend, PauseOrder | None]]] = {}
        """Per playbook, the spend of each line, deleted lines included: they share one cap."""
        self._versions: dict[str, dict[int, LiveVersion]] = {}
        """Versions, those of deleted playbooks included: ``history`` may be read before the tombstone."""

    def __len__(self) -> int:
        return len(self._rows)

    def batch_size(self, name: str) -> int:
        """Return at how many reflections a playbook's window closes."""
        return self._rows[name].newest.batch_size if name in self._rows else self._batch_size

    def touch(self, name: str, at_ms: int) -> str | None:
        """Note a change of a playbook; return the line dropped in exchange, if any."""
        row = self._row(name)
        row.newest = row.newest.model_copy(update={"changed_at_ms": max(at_ms, row.newest.changed_at_ms)})
        if row.newest.version:
            return None
        self._without_version[name] = None
        self._without_version.move_to_end(name)
        if len(self._without_version) <= MAX_WITHOUT_VERSION:
            return None
        oldest = next(iter(self._without_version))
        self.forget(oldest)
        return oldest

    def newest(self, playbook: Playbook) -> None:
        """Add the newest version, from ``playbooks``; a deleted playbook leaves its bookkeeping there."""
        own = playbook.spend, playbook.paused
        self._spent.setdefault(playbook_of(playbook.name), {})[playbook.name] = own
        self._tenants.spent(playbook)
        if playbook.origin == "delete":
            self.forget(playbook.name)
            return
        row = self._row(playbook.name)
        if playbook.version >= row.newest.version:
            row.newest = row.newest.model_copy(
                update={
                    "version": playbook.version,
                    **counts(playbook),
                    **last_shares(playbook),
                    "retention_recent": playbook.retention_recent,
                    "omitted_recent": playbook.omitted_recent,
                    "warnings": warnings(playbook),
                    "branch": playbook.branch,
                    "batch_size": batch_size_of(playbook, None, row.newest.batch_size),
                }
            )
            self._without_version.pop(playbook.name, None)
        self.touch(playbook.name, playbook.created_at_ms)

    def past(self, playbook: Playbook) -> None:
        """Add any version, also from ``history``, in any order."""
        versions = self._versions.setdefault(playbook.name, {})
        versions[playbook.version] = _version(playbook)
        if len(versions) > KEPT:
            del versions[min(versions)]

    def size(self, decided: BatchSize) -> None:
        """Add a decision of the controller."""
        row = self._row(decided.playbook)
        size = LiveSize(at_ms=decided.decided_at_ms, batch_size=decided.batch_size, reason=decided.reason)
        if not row.sizes or row.sizes[-1].batch_size != size.batch_size:
            row.sizes.append(size)
        branch = row.newest.branch
        if branch is None or branch.settings.batch_size is None:
            row.newest = row.newest.model_copy(
                update={"batch_size": decided.batch_size, "batch_size_reason": decided.reason}
            )

    def became(self, name: str, batch_id: str) -> LiveVersion | None:
        """Return the version that a batch became, if it is kept."""
        versions = reversed(self._versions.get(name, {}).values())
        return next((version for version in versions if batch_id and version.batch_id == batch_id), None)

    def forget(self, name: str) -> None:
        """Drop a playbook that was deleted, or perhaps never existed."""
        self._rows.pop(name, None)
        self._without_version.pop(name, None)
        self._versions.pop(name, None)

    def shown(
        self, windows: Windows, in_flight: Mapping[str, int], most: int, now_ms: int
    ) -> tuple[LivePlaybook, ...]:
        """Return the last changed summaries, newest first, branches with their playbook.

        Lines without a version are included only if one is due; ``in_flight`` has the current batches.
        """
        there = [
            row
            for name, row in self._rows.items()
            if row.newest.version or windows.count(name) or in_flight.get(name)
        ]
        changed: dict[str, int] = {}
        for row in there:
            of = playbook_of(row.newest.name)
            changed[of] = max(row.newest.changed_at_ms, changed.get(of, 0))
        there.sort(key=lambda row: (-changed[playbook_of(row.newest.name)], place(row.newest.name)))
        return tuple(self._shown(row, windows, in_flight, now_ms) for row in there[:most])

    def _shown(self, row: _Row, windows: Windows, in_flight: Mapping[str, int], now_ms: int) -> LivePlaybook:
        name = row.newest.name
        lines = {
            line: LineSpend(
                spend=spend, in_flight=in_flight.get(line, 0), batch_size=self.batch_size(line), paused=paused
            )
            for line, (spend, paused) in (
                {name: (Spend(), None)} | self._spent.get(playbook_of(name), {})
            ).items()
        }
        day = today_of(name, lines, self._spending, self._tenants, now_ms)
        versions = self._versions.get(name, {})
        return row.newest.model_copy(
            update={
                "waiting": windows.count(name),
                "waiting_since_ms": windows.since_ms(name),
                "versions": tuple(versions[number] for number in sorted(versions)),
                "sizes": tuple(row.sizes),
                "spend_tokens": day.spend.tokens,
                "spend_cost": day.spend.cost,
                "paused": day.paused.reason if day.paused else "",
            }
        )

    def _row(self, name: str) -> _Row:
        if name not in self._rows:
            self._rows[name] = _Row(LivePlaybook(name=name, batch_size=self._batch_size))
        return self._rows[name]


def _version(playbook: Playbook) -> LiveVersion:
    summary, batch = version_summary(playbook), playbook.batch
    row = dict(summary) | {"at_ms": playbook.created_at_ms, "seconds": max(0.0, summary.seconds or 0.0)}
    if batch is not None:
        usage, plan = batch.usage + batch.plan.reflect_usage, batch.plan
        row |= {"batch_size": plan.batch_size, "close_reason": plan.reason}
        row |= {
            "tokens": usage.tokens_in + usage.tokens_out,
            "cost": playbook.spend.cost_each * plan.reflections,
        }
    return LiveVersion.model_validate(row)
