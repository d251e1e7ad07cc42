"""Comparison of a playbook and its branches, from the topics: learning and spending since the fork."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from combee.adapters.ports import Log
from combee.core.names.tenants import NO_LIMITS, Limits, Tenants
from combee.core.playbook.side_by_side import (
    Line,
    Today,
    batch_size_of,
    in_order,
    learned,
    today_of,
)
from combee.core.playbook.spend import UNCAPPED, LineSpend, SpendPolicy
from combee.core.playbook.versions import empty
from combee.log.history import History, newest_snapshots, whole
from combee.log.inspection.batches import in_flight, newest_sequences
from combee_schemas import topics
from combee_schemas.base import playbook_of
from combee_schemas.control import BatchSize
from combee_schemas.plan import Branch
from combee_schemas.playbook import Playbook


@dataclass(slots=True, kw_only=True)
class _Read:
    """The part of a line's history since its fork."""

    branch: Branch | None
    since: int
    end: int
    versions: list[Playbook] = field(default_factory=list)
    """Without their entries: they may be many."""


class SideBySide:
    """Looks lines up; a later call reads on from the last one."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._read: dict[str, _Read] = {}

    async def lines(self, snapshots: Mapping[str, Playbook], playbook: str | None = None) -> Sequence[Line]:
        """Return each playbook with open branches, and these branches; or one playbook with its branches."""
        forks: dict[str, list[int]] = {}
        for snapshot in snapshots.values():
            if snapshot.branch is not None:
                forks.setdefault(snapshot.branch.of, []).append(snapshot.branch.version)
        wanted = forks.keys() if playbook is None else {playbook}
        shown = [
            snapshot
            for name in in_order(name for name in snapshots if playbook_of(name) in wanted)
            if (snapshot := snapshots[name]).origin != "delete"
            and (snapshot.branch is not None or playbook_of(name) == name)
        ]
        return [
            await self._line(
                newest, newest.branch.version if newest.branch else min(forks.get(newest.name, [0]))
            )
            for newest in shown
        ]

    async def _line(self, newest: Playbook, since: int) -> Line:
        read = self._read.get(newest.name)
        if read is None or (read.branch, read.since) != (newest.branch, since):
            forked = await self._history.exactly(playbook_of(newest.name), since)
            end = forked.history_offset + 1 if forked else 0
            read = self._read[newest.name] = _Read(branch=newest.branch, since=since, end=end)
        new = self._history.between(newest.name, read.end, newest.history_offset + 1)
        async with aclosing(new) as versions:
            async for version in versions:
                if version.branch == newest.branch:
                    read.versions.append(version.model_copy(update={"entries": ()}))
        read.end = max(read.end, newest.history_offset + 1)
        return Line(playbook=newest, since=since, learned=learned(read.versions))


async def batch_sizes(log: Log) -> dict[str, BatchSize]:
    """Return the controller's last decisions, by line."""
    read = map(topics.BATCH_SIZES.read_or_none, await whole(log, topics.BATCH_SIZES))
    return {decided.playbook: decided for decided in read if decided is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class LinesToday:
    """All playbooks and branches as they stand now."""

    snapshots: Mapping[str, Playbook]
    decided: Mapping[str, BatchSize]
    """The controller's last decisions, by line."""
    today: Mapping[str, Today]
    """Includes deleted lines, and lines with a batch in flight and no version yet."""


async def lines_today(
    log: Log,
    now_ms: int,
    batch_size: int,
    spending: SpendPolicy = UNCAPPED,
    limits: Mapping[str, Limits] = NO_LIMITS,
) -> LinesToday:
    """Return all lines, by the settings' start value of batch sizes, caps and limits of tenants."""
    snapshots, newest, decided = (
        await newest_snapshots(log),
        await newest_sequences(log),
        await batch_sizes(log),
    )
    tenants = Tenants.of(limits, snapshots.values())
    sharing: dict[str, dict[str, LineSpend]] = {}
    for name in snapshots.keys() | newest.keys():
        playbook, size = snapshots.get(name) or empty(name), decided.get(name)
        sharing.setdefault(playbook_of(name), {})[name] = LineSpend(
            spend=playbook.spend,
            in_flight=in_flight(newest, name, playbook),
            batch_size=batch_size_of(playbook, size.batch_size if size else None, batch_size),
            paused=playbook.paused,
        )
    today = {
        name: today_of(name, lines, spending, tenants, now_ms) for lines in sharing.values() for name in lines
    }
    return LinesToday(snapshots=snapshots, decided=decided, today=today)
