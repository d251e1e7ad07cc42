"""A new user's terminal: an environment, a folder, commands one after the other, some of them left running."""

import asyncio
import os
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

COMMAND_TIMEOUT_S = 120.0
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
EXPORT = re.compile(r"export (?P<name>\w+)=(?P<value>\S*)$")
STAYS = {"combee up": "combee is up", "combee playbook watch": "watching", "combee worker": '"ready"'}
"""Commands that run until they are told to stop, and what they say when they are ready."""


@dataclass(slots=True)
class Terminal:
    folder: Path
    env: dict[str, str]
    done: list[str] = field(default_factory=list)
    _staying: dict[str, tuple[asyncio.subprocess.Process, Path]] = field(default_factory=dict)

    @classmethod
    def opened(cls, folder: Path, path_first: Path, **env: str) -> "Terminal":
        machine: Mapping[str, str] = os.environ  # noqa: TID251 - a child needs a PATH
        return cls(folder, {**machine, "PATH": f"{path_first}:{machine['PATH']}", **env})

    async def run(self, line: str) -> str:
        """Run one line as a user would type it; return what it printed."""
        self.done.append(line)
        if exported := EXPORT.match(line):
            self.env[exported["name"]] = exported["value"]
            return ""
        for start, ready in STAYS.items():
            if line.startswith(start):
                await self._stay(line, ready)
                return ""
        process = await self._start(line, asyncio.subprocess.PIPE)
        out, _ = await asyncio.wait_for(process.communicate(), COMMAND_TIMEOUT_S)
        assert process.returncode == 0, f"{line} ended with {process.returncode}:\n{out.decode()}"
        return out.decode()

    async def _start(self, line: str, output: int | IO[bytes]) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            f"exec {line}" if line.startswith("combee ") else line,
            cwd=self.folder,
            env=self.env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )

    async def _stay(self, line: str, ready: str) -> None:
        said = self.folder / f"output-{len(self.done)}"
        with said.open("wb") as output:
            process = await self._start(line, output)
        self._staying[line] = (process, said)
        async with asyncio.timeout(READY_TIMEOUT_S):
            while ready not in said.read_text():
                assert process.returncode is None, f"{line} ended:\n{said.read_text()}"
                await asyncio.sleep(0.05)

    async def close(self) -> None:
        """Press Ctrl-C in every command that is still running; each must end well, in time."""
        staying, self._staying = self._staying, {}
        for process, _ in staying.values():
            if process.returncode is None:
                process.send_signal(signal.SIGINT)
        for line, (process, said) in staying.items():
            try:
                code = await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
            except TimeoutError:
                os.killpg(process.pid, signal.SIGKILL)
                raise
            assert code == 0, f"{line} ended with {code}:\n{said.read_text()}"
