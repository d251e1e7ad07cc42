"""Command lines and the start of a JVM."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from combee.adapters.embedded_kafka import guard
from combee.adapters.embedded_kafka.archive import Archive
from combee.adapters.embedded_kafka.java import Java

# Everything else stays out, secrets above all: the broker needs none of them.
KEPT_VARIABLES = frozenset({"HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ"})
SMALL = ("-Xms128m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto")
# Half the compiler: starts sooner, peaks lower.
QUICK = "-XX:TieredStopAtLevel=1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Jvm:
    """A Java with the broker's classes."""

    java: Java
    jars: Sequence[Path]
    archive: Archive
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
        """Start a process that outlives us only while somebody else holds ``lease``; return its id."""
        # Isolated and without site: the guard needs neither packages nor the user's settings.
        launcher = [sys.executable, "-I", "-S", guard.__file__, str(lease), str(log), *command]
        return os.posix_spawn(sys.executable, launcher, self._environment())

    async def run(self, command: Sequence[str]) -> tuple[int, str]:
        """Run to its end; return the exit code and what it wrote."""
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
