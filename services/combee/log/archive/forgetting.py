"""Erasure from a topic prefix: it is archived, written without the erased records under a new prefix, and deleted.

The log alone holds the progress, so a killed run can be repeated. Until the old prefix is marked as moved it is
whole, and the new one is begun afresh; after that the new one is whole, and the old one only has to be deleted. No
service starts under a prefix with a mark. Archives are replaced after that mark: a second attempt must find the same
facts about a run, even if only one archive has them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from combee.adapters.ports import Clock, FatalError, Log
from combee.core.log.layout import Wanted
from combee.log.archive import restoring
from combee.log.archive.erasing import Wish, found_runs, is_empty, without
from combee.log.archive.file import ArchiveReader
from combee.log.archive.restoring import OnProgress, Tell, Topics
from combee.log.archive.writing import write_archive
from combee.log.inspection.audit import audit
from combee_schemas.archive import ArchiveHeader, Restoring
from combee_schemas.erasure import Erasure
from combee_schemas.topics import BY_NAME, ERASURES, FORMAT_MARK, RESTORING, TOPICS

WHOLE, LEFT = "whole.archive", "left.archive"
"""Temporary copies: of the whole prefix, and of the prefix without the erased records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A topic prefix."""

    prefix: str
    log: Log
    admin: Topics


async def is_moved(old: Place, new: Place) -> bool:
    """Return whether the prefix has already been moved to the new one.

    Raises
    ------
    FatalError
        If it was moved to another prefix, or an archive is being read into the old one.
    """
    mark = await restoring.marked(old.log, old.admin)
    if mark is None:
        return await _is_deleted(old) and await _is_what_was_left(new)
    if not mark.moved_to:
        raise FatalError(f"an archive has been read into {old.prefix} in part only: finish that first")
    if mark.moved_to != new.prefix:
        raise FatalError(f"{old.prefix} was moved to {mark.moved_to}: continue with --to {mark.moved_to}")
    return True


async def _is_deleted(place: Place) -> bool:
    there = await place.admin.names()
    return not any(topic.name in there for topic in TOPICS)


async def _is_what_was_left(place: Place) -> bool:
    """Return whether a prefix is whole and has a record of an erasure."""
    there = await place.admin.names()
    if ERASURES.name not in there or RESTORING.name in there:
        return False
    return any((await place.log.settled(ERASURES.name)).values())


async def begin_anew(old: Place, new: Place, folder: Path) -> None:
    """Delete the new topics of a run killed before the old prefix was marked; the old prefix is still whole."""
    _clean(folder)
    if RESTORING.name in await old.admin.names() and await restoring.marked(old.log, old.admin) is None:
        await old.admin.delete(RESTORING.name)  # the topic was created, but nothing was written to it
    mark = await restoring.marked(new.log, new.admin)
    if mark is not None and mark.erased_from == old.prefix:
        await _delete_topics(new)


async def survey(
    old: Place, folder: Path, wish: Wish, archives: Sequence[Path], clock: Clock
) -> Sequence[Erasure]:
    """Return the effects on a prefix and on archives without changing anything; services may run."""
    _clean(folder)
    try:
        await write_archive(old.log, folder / WHOLE, prefix=old.prefix, configs={}, clock=clock)
        files = (folder / WHOLE, *archives)
        return erased_files(files, wish, folder, replace=())
    finally:
        _clean(folder)


async def move(
    old: Place,
    new: Place,
    folder: Path,
    wish: Wish,
    archives: Sequence[Path],
    *,
    configs: Mapping[str, Mapping[str, str]],
    replication: int,
    clock: Clock,
    on_progress: OnProgress = lambda *_: None,
    session_s: float = 0.0,
    tell: Tell = lambda _: None,
) -> Sequence[Erasure]:
    """Write a prefix without the erased records under another one, replace archives, and mark the old prefix.

    Call ``begin_anew`` first. For ``session_s`` and ``tell`` see ``restoring.refuse_members``.

    Raises
    ------
    FatalError
        If services or writers are active, or an erased record is in a batch under way; the old prefix stays as it
        was.
    """
    is_marked = False
    try:
        await restoring.refuse_members(old.admin, old.prefix, session_s, tell)
        was_good = (await audit(old.log, on_progress)).good
        written = await write_archive(
            old.log, folder / WHOLE, prefix=old.prefix, configs=configs, clock=clock, on_progress=on_progress
        )
        erasures = _rewritten((folder / WHOLE, *archives), wish, folder, replace=archives)
        if is_empty(erasures[0]):
            _replace(archives)
            return erasures

        async def before_open() -> None:
            nonlocal is_marked
            report = await audit(new.log, on_progress)
            if was_good and not report.good:
                raise FatalError(f"the ledger of {new.prefix} is not clean: {old.prefix} stays as it is")
            await _refuse_news(old, written.header)
            mark = Restoring(archive="", moved_to=new.prefix)
            await old.admin.create(RESTORING.name, 1, replication, RESTORING.config())
            await old.admin.wait_created({RESTORING.name: 1})
            is_marked = True
            await old.log.produce(RESTORING.record(mark))
            _replace(archives)

        await restoring.restore(
            new.log,
            new.admin,
            folder / LEFT,
            _layout(folder / LEFT),
            prefix=new.prefix,
            replication=replication,
            clock=clock,
            on_progress=on_progress,
            erased_from=old.prefix,
            before_open=before_open,
        )
        return erasures
    finally:
        _clean(folder)
        if not is_marked:
            _discard(archives)


async def finish(old: Place, new: Place, folder: Path, archives: Sequence[Path]) -> None:
    """Finish after a prefix was moved: delete its topics, the mark last, and the copies."""
    _clean(folder)
    _replace(archives)
    await new.admin.delete(RESTORING.name)
    await _delete_topics(old)


async def _delete_topics(place: Place) -> None:
    """Delete Combee's topics, the mark last; other topics under the prefix stay."""
    there = frozenset(await place.admin.names())
    for name in (*(topic.name for topic in TOPICS), FORMAT_MARK):
        if name in there:
            await place.admin.delete(name)
    await place.admin.delete(RESTORING.name)


async def _refuse_news(old: Place, header: ArchiveHeader) -> None:
    """Refuse to continue if records came after the copy was made: they would be lost."""
    for topic in header.topics:
        ends = await old.log.settled(topic.name)
        if tuple(at for _, at in sorted(ends.items())) != topic.ends:
            raise FatalError(
                f"new records came to {old.prefix}.{topic.name} meanwhile: stop agents and gateway, and run"
                f" this again"
            )


def _layout(file: Path) -> tuple[Wanted, ...]:
    with ArchiveReader(file) as archive:
        topics = archive.header.topics
    return tuple(Wanted(topic=BY_NAME[topic.name], partitions=topic.partitions) for topic in topics)


def erased_files(
    files: Sequence[Path], wish: Wish, folder: Path, *, replace: Collection[Path]
) -> Sequence[Erasure]:
    """Write archives without the erased records: in their place, all or none, or to ``LEFT``."""
    erasures = _rewritten(files, wish, folder, replace=replace)
    _replace(replace)
    return erasures


def _rewritten(
    files: Sequence[Path], wish: Wish, folder: Path, *, replace: Collection[Path]
) -> Sequence[Erasure]:
    """Write archives without the erased records: next to the files to be replaced, or to ``LEFT``."""
    runs = found_runs(files, wish.selector)
    erasures = []
    try:
        for file in files:
            target = _beside(file) if file in replace else folder / LEFT
            target.unlink(missing_ok=True)
            erasures.append(without(file, target, wish, runs))
            if file in replace and is_empty(erasures[-1]):
                target.unlink()
    except BaseException:
        _discard(replace)
        raise
    return erasures


def _beside(archive: Path) -> Path:
    return archive.with_name(f"{archive.name}.left")


def _replace(archives: Iterable[Path]) -> None:
    """Replace archives by the files written next to them."""
    for file in archives:
        with suppress(FileNotFoundError):
            _beside(file).replace(file)


def _discard(archives: Iterable[Path]) -> None:
    for file in archives:
        _beside(file).unlink(missing_ok=True)


def _clean(folder: Path) -> None:
    """Delete the copies, including those of a killed run."""
    for name in (WHOLE, LEFT):
        for file in (folder / name, folder / f"{name}.part"):
            file.unlink(missing_ok=True)
