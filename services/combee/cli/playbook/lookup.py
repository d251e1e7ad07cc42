"""Playbooks looked up in the log, without a view: what a command needs, read once."""

import asyncio
from collections.abc import AsyncIterator

from combee.ports import FatalError, Log, Record, TopicPartition
from combee_schemas import topics
from combee_schemas.playbook import LATEST, Label, Playbook
from combee_schemas.topics import AnyTopic, key_of


async def whole(log: Log, topic: AnyTopic) -> list[Record]:
    """Return every record of a small topic."""

    async def one(partition: int) -> list[Record]:
        source = TopicPartition(topic=topic.name, partition=partition)
        return [record async for record in log.read(source, 0)]

    parts = await asyncio.gather(*(one(number) for number in range(await log.partitions(topic.name))))
    return [record for part in parts for record in part]


async def newest_playbooks(log: Log) -> dict[str, Playbook]:
    """Return the newest version of every playbook, by name."""
    return {name: one for name, one in (await newest_snapshots(log)).items() if one.origin != "delete"}


async def newest_snapshots(log: Log) -> dict[str, Playbook]:
    """Return the newest version of every playbook by name, and what remains of the deleted ones."""
    found: dict[str, Playbook] = {}
    for record in await whole(log, topics.PLAYBOOKS):
        _take(found, record)
    by_name = {one.name: one for one in sorted(found.values(), key=lambda one: one.version)}
    return dict(sorted(by_name.items()))


async def newest_playbook(log: Log, name: str) -> Playbook | None:
    """Return the newest version of one playbook."""
    found: dict[str, Playbook] = {}
    async for record in _of(log, topics.PLAYBOOKS, name):
        _take(found, record)
    return found.get(name)


def _take(found: dict[str, Playbook], record: Record) -> None:
    if record.value is None:
        found.pop(key_of(record), None)
        return
    playbook, known = topics.PLAYBOOKS.read_or_none(record), found.get(key_of(record))
    if playbook is not None and (known is None or playbook.version > known.version):
        found[key_of(record)] = playbook


async def versions(log: Log, name: str) -> AsyncIterator[Playbook]:
    """Yield every retained version of a playbook, oldest first."""
    async for record in _of(log, topics.HISTORY, name):
        for found in topics.HISTORY.under(name, [record]):
            yield found


async def _of(log: Log, topic: AnyTopic, name: str) -> AsyncIterator[Record]:
    key = name.encode()
    source = TopicPartition(topic=topic.name, partition=await log.partition_for(topic.name, key))
    async for record in log.read(source, 0):
        if record.key == key:
            yield record


async def wanted(log: Log, name: str, version: int | None = None) -> Playbook:
    """Return one version of a playbook, the newest by default.

    Raises
    ------
    FatalError
        If there is no such playbook or version.
    """
    newest = await newest_playbook(log, name)
    if newest is None:
        raise await _missing(log, name)
    if version in (None, newest.version):
        return newest
    # Read to the end: a reader that is left in the middle is not closed before the log is.
    for playbook in [found async for found in versions(log, name) if found.version == version]:
        return playbook
    raise FatalError(f"{name} has no version {version}; the newest is {newest.version}")


async def _missing(log: Log, name: str) -> FatalError:
    snapshots = await newest_snapshots(log)
    gone = snapshots.get(name)
    if gone is not None:
        back = f"'combee playbook rollback {name} {gone.version - 1}' brings it back"
        return FatalError(f"there is no playbook {name} any more: version {gone.version} deleted it; {back}")
    known = ", ".join(one.name for one in snapshots.values() if one.origin != "delete") or "none yet"
    return FatalError(f"there is no playbook {name}; there are: {known}")


async def resolved(log: Log, name: str, ref: str) -> Playbook:
    """Return the version that a number, a label or ``latest`` names.

    Raises
    ------
    FatalError
        If there is no such playbook, version or label.
    """
    if ref == LATEST or (ref.isascii() and ref.isdigit()):
        return await wanted(log, name, None if ref == LATEST else int(ref))
    known = (await labels(log)).get(name, {})
    if ref not in known:
        await wanted(log, name)
        listed = ", ".join(sorted(known)) or "none yet"
        raise FatalError(f"{name} has no label {ref}; there are: {listed}; 'latest' is the newest version")
    return await wanted(log, name, known[ref])


async def labels(log: Log) -> dict[str, dict[str, int]]:
    """Return the versions that labels point at, by playbook."""
    by_playbook: dict[str, dict[str, int]] = {}
    for label in await all_labels(log):
        by_playbook.setdefault(label.playbook, {})[label.label] = label.version
    return by_playbook


async def all_labels(log: Log) -> list[Label]:
    """Return all labels as they were moved last."""
    found: dict[str, Label] = {}
    for record in await whole(log, topics.LABELS):
        label = topics.LABELS.read_or_none(record)
        if label is not None:
            found[key_of(record)] = label
        else:
            found.pop(key_of(record), None)
    return sorted(found.values(), key=lambda label: (label.playbook, label.label))
