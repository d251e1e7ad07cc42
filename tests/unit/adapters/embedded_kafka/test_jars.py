import errno
import re
import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from combee.adapters.embedded_kafka import DiskFullError, DownloadError, JarMismatchError
from combee.adapters.embedded_kafka.jars import ATTEMPTS, Jar, ensure, pinned

COORDINATES = tuple(f"org.example:part-{n}:1.{n}" for n in range(12))


def body(coordinate: str) -> bytes:
    return f"the jar of {coordinate}".encode() * 100


JARS = tuple(Jar(coordinate=c, sha256=sha256(body(c)).hexdigest()) for c in COORDINATES)


class Repository:
    """Serves jars into the scratch folder and remembers what it was asked for."""

    def __init__(self, serve: Callable[[str], bytes] = body) -> None:
        self.asked: list[str] = []
        self._serve = serve
        self._lock = threading.Lock()

    def __call__(self, coordinate: str, scratch: Path) -> Path:
        with self._lock:
            self.asked.append(coordinate)
        content = self._serve(coordinate)
        scratch.mkdir(parents=True)
        arrived = scratch / "arrived.jar"
        arrived.write_bytes(content)
        return arrived


def test_the_whole_broker_is_pinned() -> None:
    jars = pinned()

    assert len(jars) == len({jar.name for jar in jars}) == 46
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in jars)
    assert all(jar.coordinate.count(":") == 2 for jar in jars)
    assert "kafka_2.13-4.3.1.jar" in {jar.name for jar in jars}


async def test_all_jars_arrive_and_nothing_else_is_left(tmp_path: Path) -> None:
    paths = await ensure(JARS, tmp_path / "cache", fetch=Repository())

    assert [path.read_bytes() for path in paths] == [body(c) for c in COORDINATES]
    assert {p.name for p in (tmp_path / "cache").iterdir()} - {".lock"} == {jar.name for jar in JARS}


async def test_a_complete_cache_needs_no_network(tmp_path: Path) -> None:
    await ensure(JARS, tmp_path, fetch=Repository())
    second = Repository()

    await ensure(JARS, tmp_path, fetch=second)

    assert second.asked == []


async def test_an_interrupted_download_goes_on_where_it_stopped(tmp_path: Path) -> None:
    def breaks_off(coordinate: str) -> bytes:
        if coordinate in COORDINATES[9:]:
            raise ConnectionError("reset by peer")
        return body(coordinate)

    with pytest.raises(DownloadError, match="continues where it stopped"):
        await ensure(JARS, tmp_path, fetch=Repository(breaks_off))
    arrived = {jar.coordinate for jar in JARS if (tmp_path / jar.name).exists()}
    second = Repository()
    await ensure(JARS, tmp_path, fetch=second)

    assert arrived
    assert set(second.asked) == set(COORDINATES) - arrived


async def test_a_damaged_jar_is_fetched_again(tmp_path: Path) -> None:
    paths = await ensure(JARS, tmp_path, fetch=Repository())
    paths[3].write_bytes(b"damaged")
    second = Repository()

    await ensure(JARS, tmp_path, fetch=second)

    assert second.asked == [COORDINATES[3]]
    assert paths[3].read_bytes() == body(COORDINATES[3])


async def test_half_a_jar_of_a_killed_download_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    left_over = tmp_path / ".partial" / JARS[0].name
    left_over.mkdir(parents=True)
    (left_over / "arrived.jar").write_bytes(b"half")

    paths = await ensure(JARS, tmp_path, fetch=Repository())

    assert paths[0].read_bytes() == body(COORDINATES[0])


async def test_a_jar_that_is_not_the_pinned_one_is_never_installed(tmp_path: Path) -> None:
    repository = Repository(lambda _: b"something else")

    with pytest.raises(JarMismatchError, match=r"pinned is .* COMBEE_BOOTSTRAP_SERVERS"):
        await ensure(JARS[:1], tmp_path, fetch=repository)

    assert len(repository.asked) == ATTEMPTS
    assert not (tmp_path / JARS[0].name).exists()


async def test_a_hiccup_of_the_network_is_tried_again(tmp_path: Path) -> None:
    answers = iter([ConnectionError("reset"), RuntimeError("not found: 502")])

    def recovers(coordinate: str) -> bytes:
        if error := next(answers, None):
            raise error
        return body(coordinate)

    await ensure(JARS[:1], tmp_path, fetch=Repository(recovers))


async def test_a_full_disk_is_named_and_not_tried_again(tmp_path: Path) -> None:
    def full(_: str) -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device")

    repository = Repository(full)
    with pytest.raises(DiskFullError, match="free some"):
        await ensure(JARS[:1], tmp_path, fetch=repository)

    assert len(repository.asked) == 1


async def test_progress_counts_up_to_all_jars(tmp_path: Path) -> None:
    await ensure(JARS[:4], tmp_path, fetch=Repository())
    seen: list[tuple[int, int]] = []

    await ensure(JARS, tmp_path, fetch=Repository(), progress=lambda done, total: seen.append((done, total)))

    assert seen == [(n, 12) for n in range(5, 13)]


async def test_jars_are_fetched_side_by_side(tmp_path: Path) -> None:
    all_there = threading.Barrier(4, timeout=10)

    def meets(coordinate: str) -> bytes:
        all_there.wait()
        return body(coordinate)

    await ensure(JARS[:4], tmp_path, fetch=Repository(meets))
