"""The archive file: what was written is read, and nothing else is taken for it."""

import fcntl
import gzip
import stat
import zlib
from hashlib import sha256
from pathlib import Path
from random import Random

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.log.archive.file import ArchiveReader, ArchiveWriter, whole_file
from combee.log.archive.restoring import read_contents
from combee_schemas.archive import (
    DIGEST,
    FORMAT,
    FRAME,
    HEADER,
    MAGIC,
    MAX_FRAME_BYTES,
    RECORD,
    TOTALS,
    ArchiveError,
    ArchiveHeader,
    ArchiveTotals,
    TopicContents,
    frame,
    read_record,
    record_body,
)
from combee_schemas.codec import CodecError, encode
from combee_schemas.records import Record
from support.rows import each_row

BYTES = st.none() | st.binary(max_size=50)
RECORDS = st.builds(
    Record,
    topic=st.just("history"),
    partition=st.integers(0, 1),
    offset=st.integers(0, 2**63 - 1),
    timestamp_ms=st.integers(-1, 2**62),
    key=BYTES,
    value=BYTES,
    headers=st.lists(st.tuples(st.text(max_size=10), BYTES), max_size=3).map(tuple),
)
TWO = ArchiveHeader(
    prefix="t",
    topics=(
        TopicContents(name="history", partitions=2, ends=(9, 9)),
        TopicContents(name="playbooks", partitions=2, ends=(9, 9)),
    ),
    cut_at_ms=0,
)


def some(topic: str = "history", partition: int = 0, offset: int = 0, value: bytes = b"v") -> Record:
    return Record(topic=topic, partition=partition, offset=offset, timestamp_ms=1, key=b"k", value=value)


def packed(*frames: bytes, magic: bytes = MAGIC, digest: bytes | None = None) -> bytes:
    """Return a file of these frames; the last one, the hash, is made here."""
    body = magic + b"".join(frames)
    return gzip.compress(body + frame(DIGEST, sha256(body).digest() if digest is None else digest))


def read(path: Path, raw: bytes) -> list[Record]:
    path.write_bytes(raw)
    with ArchiveReader(path) as archive:
        return list(archive.records())


def totals(*records: int) -> bytes:
    return frame(TOTALS, encode(ArchiveTotals(records=records, firsts=((0, 0), (0, 0)))))


HEAD = frame(HEADER, encode(TWO))


def put(record: Record) -> bytes:
    return frame(RECORD, record_body([topic.name for topic in TWO.topics].index(record.topic), record))


@given(record=RECORDS)
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    assert read_record(record_body(0, record), ["history"]) == (0, record)


@given(raw=st.binary(max_size=80))
def test_random_bytes_are_a_record_or_refused(raw: bytes) -> None:
    try:
        read_record(raw, ["history"])
    except CodecError:
        return


def test_a_file_holds_what_was_put_into_it(tmp_path: Path) -> None:
    records = [some(), some(offset=3), some(partition=1), some("playbooks")]
    with whole_file(tmp_path / "a") as file:
        writer = ArchiveWriter(file, TWO)
        for record in records:
            writer.add(record)
        digest = writer.finish(((0, 0), (0, 0)))
    with ArchiveReader(tmp_path / "a") as archive:
        assert (archive.header, list(archive.records()), archive.sha256) == (TWO, records, digest)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600, "it holds what agents were told"


# ---- whole or not at all


def test_of_a_file_that_breaks_off_nothing_stays(tmp_path: Path) -> None:
    def broken() -> None:
        with whole_file(tmp_path / "a") as file:
            file.write(b"half")
            assert not (tmp_path / "a").exists()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_writer_left_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "a.part").write_bytes(b"x" * 10_000)
    with whole_file(tmp_path / "a") as file:
        file.write(b"whole")
    assert gzip.decompress((tmp_path / "a").read_bytes()) == b"whole"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"mine")
    with pytest.raises(ArchiveError, match="is there already"), whole_file(tmp_path / "a"):
        pass
    assert (tmp_path / "a").read_bytes() == b"mine"


def test_a_file_that_another_writer_has_just_finished_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lock = tmp_path / "a", fcntl.flock

    def late(file: int, operation: int) -> None:
        (tmp_path / "a.part").rename(path)  # the other one ends between our opening of its file and its lock
        path.write_bytes(b"all of it")
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(ArchiveError, match="is there already"), whole_file(path):
        pass
    assert path.read_bytes() == b"all of it"


def test_a_link_in_the_place_of_the_unfinished_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"kept")
    (tmp_path / "a.part").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links"), whole_file(tmp_path / "a"):
        pass
    assert (tmp_path / "precious").read_bytes() == b"kept"


def test_two_writers_of_one_file_are_one_too_many(tmp_path: Path) -> None:
    with whole_file(tmp_path / "a") as file:
        file.write(b"first")
        with pytest.raises(ArchiveError, match="another process"), whole_file(tmp_path / "a"):
            pass
    assert gzip.decompress((tmp_path / "a").read_bytes()) == b"first"


# ---- what is no archive


@pytest.fixture(name="whole", scope="module")
def one_whole_archive() -> bytes:
    records = [some(offset=at, value=b"value %d" % (at * at)) for at in range(20)]
    return packed(HEAD, *map(put, records), totals(len(records), 0))


def refused(path: Path, raw: bytes) -> str:
    with pytest.raises(ArchiveError) as caught:
        read(path, raw)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_file_that_is_cut_off_anywhere_is_refused(whole: bytes, tmp_path: Path) -> None:
    assert len(read(tmp_path / "a", whole)) == 20
    for length in range(len(whole)):
        refused(tmp_path / "a", whole[:length])


def test_a_file_with_one_bit_turned_is_refused(whole: bytes, tmp_path: Path) -> None:
    rng = Random(1)
    # Ten bytes of gzip's own head say nothing about the content.
    for at in rng.sample(range(10, len(whole)), 100):
        raw = bytearray(whole)
        raw[at] ^= 1 << rng.randrange(8)
        refused(tmp_path / "a", bytes(raw))


def test_a_turned_bit_that_gzip_would_accept_is_refused_too(whole: bytes, tmp_path: Path) -> None:
    rng, content = Random(2), gzip.decompress(whole)
    for at in rng.sample(range(len(content)), 100):
        raw = bytearray(content)
        raw[at] ^= 1 << rng.randrange(8)
        refused(tmp_path / "a", gzip.compress(bytes(raw), 0))


HOSTILE = {
    "empty": b"",
    "not gzip": b"combee-archive\n",
    "something else": gzip.compress(b"PK\x03\x04" * 10),
    "another beginning": packed(HEAD, totals(0, 0), magic=b"combee-brchive\n"),
    "no header": packed(totals(0, 0)),
    "a header of another kind": packed(frame(HEADER, encode(ArchiveTotals(records=(), firsts=())))),
    "a header that is none": packed(frame(HEADER, b"\xc1")),
    "a header too large": packed(frame(HEADER, b"x" * (1024 * 1024))),
    "no totals": packed(HEAD, put(some())),
    "other totals": packed(HEAD, put(some()), totals(2, 0)),
    "firsts of other partitions": packed(
        HEAD, frame(TOTALS, encode(ArchiveTotals(records=(0, 0), firsts=((0,), (0,)))))
    ),
    "another hash": packed(HEAD, totals(0, 0), digest=b"\0" * 32),
    "a short hash": packed(HEAD, totals(0, 0), digest=b""),
    "more behind its end": gzip.compress(gzip.decompress(packed(HEAD, totals(0, 0))) + b"x"),
    "a second gzip behind it": packed(HEAD, totals(0, 0)) + gzip.compress(b"x"),
    "a second header": packed(HEAD, HEAD, totals(0, 0)),
    "an unknown kind": packed(HEAD, FRAME.pack(b"?", 0), totals(0, 0)),
    "a huge frame": packed(HEAD, FRAME.pack(RECORD, 2**32 - 1)),
    "a frame just too large": packed(HEAD, FRAME.pack(RECORD, MAX_FRAME_BYTES + 1)),
    "a topic twice": packed(frame(HEADER, encode(TWO.model_copy(update={"topics": TWO.topics[:1] * 2})))),
    "a record twice": packed(HEAD, put(some()), put(some()), totals(2, 0)),
    "records out of order": packed(HEAD, put(some(offset=1)), put(some()), totals(2, 0)),
    "topics out of order": packed(HEAD, put(some("playbooks")), put(some()), totals(1, 1)),
    "a partition that is not there": packed(HEAD, put(some(partition=2)), totals(1, 0)),
    "a topic that is not there": packed(HEAD, frame(RECORD, record_body(2, some())), totals(1, 0)),
    "half a record": packed(HEAD, frame(RECORD, record_body(0, some())[:-1]), totals(1, 0)),
    "a record and more": packed(HEAD, frame(RECORD, record_body(0, some()) + b"x"), totals(1, 0)),
}


def test_a_file_without_topics_that_others_name_places_in_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(packed(HEAD, totals(0, 0)))
    with pytest.raises(ArchiveError, match="lacks the topics batches, commands, dead-letters, reflections"):
        read_contents(path)


@each_row("what", HOSTILE)
def test_a_hostile_file_is_refused(tmp_path: Path, what: str) -> None:
    refused(tmp_path / "a", HOSTILE[what])


def test_a_file_that_unpacks_to_much_more_takes_no_memory(tmp_path: Path) -> None:
    bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = b"\0" * 1_000_000
    raw = bomb.compress(MAGIC + HEAD) + b"".join(bomb.compress(zeros) for _ in range(30)) + bomb.flush()
    assert len(raw) < 60_000
    refused(tmp_path / "a", raw)


def test_a_record_that_no_reader_would_take_is_not_written() -> None:
    with pytest.raises(ArchiveError, match="cannot be archived"):
        frame(RECORD, b"x" * (MAX_FRAME_BYTES + 1))


def test_no_file_at_all_is_told_plainly(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="No such file"):
        ArchiveReader(tmp_path / "none")


def test_what_a_newer_combee_wrote_is_not_read_in_part(tmp_path: Path) -> None:
    newer = TWO.model_copy(update={"messages": {"batch": 99}, "written_by": "9.0"})
    path = tmp_path / "a"
    path.write_bytes(packed(frame(HEADER, encode(newer)), totals(0, 0)))
    with pytest.raises(ArchiveError, match=r"9\.0.*batch of version 99.*upgrade"):
        read_contents(path)


def test_what_no_archive_of_ours_sets_of_a_topic_is_refused(tmp_path: Path) -> None:
    (first, *others) = TWO.topics
    hostile = first.model_copy(update={"config": {"retention.ms": "1", "remote.storage.enable": "true"}})
    path = tmp_path / "a"
    path.write_bytes(
        packed(frame(HEADER, encode(TWO.model_copy(update={"topics": (hostile, *others)}))), totals(0, 0))
    )
    with pytest.raises(ArchiveError, match=rf"sets remote\.storage\.enable of {first.name}, which"):
        read_contents(path)


@pytest.mark.parametrize("version", [FORMAT - 1, FORMAT + 1])
def test_an_archive_of_another_format_is_refused_with_the_remedy(tmp_path: Path, version: int) -> None:
    raw = msgpack.packb({"type": "archive", "version": version, "body": TWO.model_dump()})
    told = refused(tmp_path / "a", packed(frame(HEADER, raw), totals(0, 0)))
    assert "another format than" in told
    assert "restore it with the release that wrote it" in told
