"""A playbook and its branches side by side, from the topics: what each learned since the fork, what it spent."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from combee.core.playbook.side_by_side import Learned, batch_size_of, by_playbook, in_order, learned
from combee.core.playbook.spend import OtherLine
from combee.history import History, newest_snapshots, placed, whole
from combee.inspection.batches import newest_batches
from combee.ports import Log
from combee_schemas import topics
from combee_schemas.base import playbook_of
from combee_schemas.control import BatchSize
from combee_schemas.playbook import Playbook


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A playbook or a branch of it, beside the others."""

    playbook: Playbook
    """The newest version."""
    since: int
    """The playbook's version at its first fork that is still open; of a branch, the one at its own."""
    learned: Learned
    """Since then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Playbooks beside their branches."""

    shown: Sequence[Line]
    spent: Mapping[str, Mapping[str, OtherLine]]
    """By playbook what each of its lines spent, deleted ones too: all of it counts against the playbook's cap."""


async def batch_sizes(log: Log) -> dict[str, BatchSize]:
    """Return what the controller decided last, by line."""
    decisions: dict[str, BatchSize] = {}
    for record in await whole(log, topics.BATCH_SIZES):
        decided = topics.BATCH_SIZES.read_or_none(record)
        if decided is not None:
            decisions[decided.playbook] = decided
    return decisions


def under_caps(
    playbooks: Mapping[str, Playbook],
    newest_batch: Mapping[str, int],
    decisions: Mapping[str, BatchSize],
    default_size: int,
) -> dict[str, dict[str, OtherLine]]:
    """Return by playbook what each of its lines spent and has in flight, deleted ones too."""
    lines = {
        name: OtherLine(
            spend=playbook.spend,
            in_flight=max(0, newest_batch.get(name, 0) - playbook.batch_sequence),
            batch_size=batch_size_of(
                playbook, decisions[name].batch_size if name in decisions else None, default_size
            ),
        )
        for name, playbook in playbooks.items()
    }
    return by_playbook(lines)


async def lines(log: Log, playbook: str | None, default_size: int) -> Lines:
    """Return each playbook that has open branches beside them, or one playbook with those it has."""
    snapshots = await newest_snapshots(log)
    spent = under_caps(snapshots, await newest_batches(log), await batch_sizes(log), default_size)
    open_forks: dict[str, list[int]] = {}
    for snapshot in snapshots.values():
        if snapshot.branch is not None:
            open_forks.setdefault(snapshot.branch.of, []).append(snapshot.branch.version)
    wanted = {playbook} if playbook is not None else open_forks.keys()
    shown = [
        line
        for line in in_order(snapshots)
        if playbook_of(line) in wanted and (snapshots[line].branch or playbook_of(line) == line)
    ]
    since = {
        line: branch.version if (branch := snapshots[line].branch) else min(open_forks.get(line, [0]))
        for line in shown
    }
    return Lines(
        shown=[
            Line(
                playbook=snapshots[line],
                since=since[line],
                learned=learned(await _versions(log, snapshots[line], since[line])),
            )
            for line in shown
            if snapshots[line].origin != "delete"
        ],
        spent=spent,
    )


async def _versions(log: Log, newest: Playbook, since: int) -> list[Playbook]:
    """Return a line's versions since a version of its playbook, without their entries: they may be many."""
    history, of = History(log), playbook_of(newest.name)
    forked = await history.exactly(of, since)
    source = await history.source(of)
    versions: list[Playbook] = []
    start = forked.history_offset + 1 if forked else 0
    async with aclosing(log.read(source, start, newest.history_offset + 1)) as records:
        async for record in records:
            version = placed(record) if record.key == newest.name.encode() else None
            if version is not None and version.branch == newest.branch:
                versions.append(version.model_copy(update={"entries": ()}))
    return versions
