"""An archive without erased records: read three times, written whole or not at all."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from combee.core.log.archive.cut import read
from combee.core.log.erasure.lessons import Lessons
from combee.core.log.erasure.rewriting import Rewriter
from combee.core.log.erasure.runs import Identities, Runs
from combee.core.log.erasure.selector import Marker, Selector
from combee.log.archive.file import ArchiveReader, ArchiveWriter, whole_file
from combee_schemas import topics
from combee_schemas.archive import ArchiveHeader, ArchiveTotals, TopicContents
from combee_schemas.batch import Batch
from combee_schemas.erasure import Erasure
from combee_schemas.records import Record
from combee_schemas.topics import BY_NAME, ERASURES

TELLING = (topics.HISTORY, topics.PLAYBOOKS, topics.UPDATES, topics.BATCHES)
"""Topics that identify lessons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The erasure asked for, by whom and when; one for all archives and topics of a command."""

    selector: Selector
    marker: Marker
    erasure_id: str
    issued_by: str = ""
    at_ms: int = 0
    with_playbooks: bool = False


def found_runs(files: Iterable[Path], selector: Selector) -> Runs:
    """Return the selected runs from all archives together: one may have records that another lost."""
    runs = Runs()
    for file in files:
        identities = Identities()
        with ArchiveReader(file) as archive:
            for record in archive.records():
                runs.read(record, selector, identities)
    return runs


def without(source: Path, target: Path, wish: Wish, runs: Runs) -> Erasure:
    """Write an archive without the erased records and with a note of the erasure; return what was done.

    Raises
    ------
    ArchiveError
        If the source is not whole, or there is a target already.
    ErasureError
        If something cannot be erased as requested.
    """
    rewriter = Rewriter(Lessons(wish.selector, runs, with_playbooks=wish.with_playbooks), wish.marker)
    _prepare(rewriter, source)
    with ArchiveReader(source) as archive, whole_file(target) as file:
        header = _header(archive.header)
        writer = ArchiveWriter(file, header)
        for record in archive.records():
            if (left := rewriter.record(BY_NAME[record.topic], record)) is not None:
                writer.add(left)
        erasure = Erasure(
            erasure_id=wish.erasure_id,
            selector=wish.selector.kind,
            issued_by=wish.issued_by,
            erased_at_ms=wish.at_ms,
            dropped=dict(rewriter.dropped),
            rewritten=dict(rewriter.rewritten),
            entries=len(rewriter.lessons.gone),
        )
        writer.add(_record(erasure, header))
        assert archive.totals is not None  # noqa: S101 - it is set once all records have been read
        writer.finish(_firsts(archive.totals, header))
    return erasure


def is_empty(erasure: Erasure) -> bool:
    """Return whether nothing was found; recorded answers are erased in any case."""
    return not (erasure.rewritten or erasure.dropped.keys() - {topics.ANSWERS.name})


def _prepare(rewriter: Rewriter, source: Path) -> None:
    with ArchiveReader(source) as archive:
        for record in archive.records():
            if (topic := BY_NAME[record.topic]) in TELLING and (message := read(topic, record)):
                rewriter.lessons.add(message)
                if isinstance(message, Batch):
                    rewriter.prepare(message, record.partition)
    rewriter.lessons.settle()


def _header(header: ArchiveHeader) -> ArchiveHeader:
    """Return a header with room for the erasure's record at the end."""
    known = {topic.name: topic for topic in header.topics}
    before = known.pop(ERASURES.name, None)
    begun = before or TopicContents(name=ERASURES.name, partitions=1, config=ERASURES.config(), ends=(0,))
    contents = begun.model_copy(update={"ends": (begun.ends[0] + 1, *begun.ends[1:])})
    messages = {**header.messages, Erasure.type: Erasure.version_number}
    return header.model_copy(update={"topics": (*known.values(), contents), "messages": messages})


def _record(erasure: Erasure, header: ArchiveHeader) -> Record:
    outgoing = ERASURES.record(erasure)
    return Record(
        topic=ERASURES.name,
        partition=0,
        offset=header.topics[-1].ends[0] - 1,
        timestamp_ms=erasure.erased_at_ms,
        key=outgoing.key,
        value=outgoing.value,
    )


def _firsts(totals: ArchiveTotals, header: ArchiveHeader) -> tuple[tuple[int, ...], ...]:
    missing = len(header.topics) - len(totals.firsts)
    return (*totals.firsts, *((0,) for _ in range(missing)))
