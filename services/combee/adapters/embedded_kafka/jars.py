"""The broker's jars: pinned by SHA-256, fetched from Maven in parallel, kept in a cache, checked at every start."""

import asyncio
import errno
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import file_digest
from importlib.resources import files
from pathlib import Path

from combee.adapters.embedded_kafka.errors import DiskFullError, DownloadError, JarMismatchError
from combee.adapters.embedded_kafka.locks import file_lock

PINNED = "kafka-4.3.1-jars.tsv"
PARALLEL = 8
ATTEMPTS = 3
# Another process may be fetching the same 43 MB over a slow line.
LOCK_TIMEOUT_S = 900.0
FETCH_TIMEOUT_S = 30

Fetch = Callable[[str, Path], Path]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """One pinned jar."""

    coordinate: str
    sha256: str

    @property
    def name(self) -> str:
        """Its file name."""
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"


def pinned() -> tuple[Jar, ...]:
    """Return every jar that the broker needs, in class path order."""
    text = (files(__package__) / PINNED).read_text("utf-8")
    rows = (line.split("\t") for line in text.splitlines() if line and not line.startswith("#"))
    return tuple(Jar(coordinate=coordinate, sha256=sha256) for coordinate, sha256 in rows)


def sha256(path: Path) -> str | None:
    """Return the file's SHA-256, or None if there is no such file."""
    try:
        with path.open("rb") as opened:
            return file_digest(opened, "sha256").hexdigest()
    except FileNotFoundError:
        return None


async def ensure(
    jars: Sequence[Jar], folder: Path, *, fetch: Fetch, progress: Progress | None = None
) -> tuple[Path, ...]:
    """Return the paths of all jars below ``folder``, fetching what is missing or damaged.

    ``progress`` gets jars present and jars in all, and only if something has to be fetched.
    Complete jars stay, so an interrupted download continues where it stopped.
    """
    paths = tuple(folder / jar.name for jar in jars)
    if not await asyncio.to_thread(_missing, jars, folder):
        return paths
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    async with file_lock(folder / ".lock", LOCK_TIMEOUT_S, what="the folder of Kafka's jars"):
        # Under the lock: another process may have fetched them meanwhile.
        missing = await asyncio.to_thread(_missing, jars, folder)
        await _fetch_all(missing, len(jars), folder, fetch, progress)
    return paths


def _missing(jars: Sequence[Jar], folder: Path) -> list[Jar]:
    return [jar for jar in jars if sha256(folder / jar.name) != jar.sha256]


async def _fetch_all(
    missing: Sequence[Jar], total: int, folder: Path, fetch: Fetch, progress: Progress | None
) -> None:
    scratch = folder / ".partial"
    # The rest of an interrupted download would be mistaken for a finished file.
    shutil.rmtree(scratch, ignore_errors=True)
    slots = asyncio.Semaphore(PARALLEL)
    present = total - len(missing)

    has_failed = False

    async def fetch_jar(jar: Jar) -> None:
        nonlocal present, has_failed
        async with slots:
            if has_failed:
                return
            try:
                await asyncio.to_thread(_place, jar, folder, scratch / jar.name, fetch)
            except BaseException:
                has_failed = True
                raise
        present += 1
        if progress:
            progress(present, total)

    try:
        # Downloads under way are waited for after a failure: threads cannot be stopped, and write to the scratch
        # folder.
        ended = await asyncio.gather(*map(fetch_jar, missing), return_exceptions=True)
        for failure in filter(None, ended):
            raise failure
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _place(jar: Jar, folder: Path, scratch: Path, fetch: Fetch) -> None:
    problem: DownloadError | JarMismatchError | None = None
    for _ in range(ATTEMPTS):
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            arrived = fetch(jar.coordinate, scratch)
            if (digest := sha256(arrived)) == jar.sha256:
                os.replace(arrived, folder / jar.name)  # noqa: PTH105 - atomic by name
                return
            problem = _mismatch(jar, digest)
        except (OSError, RuntimeError) as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFullError(f"No space for Kafka's jars: free some in {folder}.") from error
            problem = _unreachable(jar, error)
    raise problem or AssertionError


def _mismatch(jar: Jar, digest: str | None) -> JarMismatchError:
    return JarMismatchError(
        f"{jar.coordinate} has SHA-256 {digest}, pinned is {jar.sha256}: it was not installed. A proxy or mirror "
        "on the way serves another file; fetch without it, or run your own Kafka and set COMBEE_BOOTSTRAP_SERVERS."
    )


def _unreachable(jar: Jar, error: Exception) -> DownloadError:
    return DownloadError(
        f"Could not fetch {jar.coordinate}: {error}. Check the network (HTTPS_PROXY is honoured) and start"
        f" again, the download continues where it stopped; or run your own Kafka and set COMBEE_BOOTSTRAP_SERVERS."
    )


def fetch(coordinate: str, scratch: Path) -> Path:
    """Download ``group:artifact:version`` below ``scratch``; return the file.

    Never transitively: jgo's own resolver picks other versions than Maven does.
    """
    from jgo.maven import MavenContext  # noqa: PLC0415 - costs 0.4 s, only needed when a jar is missing

    group, artifact, version = coordinate.split(":")
    context = MavenContext(repo_cache=scratch, timeout=FETCH_TIMEOUT_S)
    return Path(context.project(group, artifact).at_version(version).artifact().resolve())
