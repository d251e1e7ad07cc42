"""A new user's terminal: one shell, what is typed into it, and commands that stay, which run on beside it."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from support.cli import all_gone, descendants

COMMAND_TIMEOUT_S = 120.0
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
STAYS = {
    "combee up": "combee is up",
    "combee sim serve": "simulated model at",
    "combee playbook watch": "watching",
    "combee worker": '"ready"',
}
"""Commands that run until they are told to stop, and what they say when they are ready."""
OVER = "--- that command is over:"
LONGEST_LINE = 1 << 20


class Terminal:
    """A shell; ``done`` is what was typed."""

    def __init__(self, shell: asyncio.subprocess.Process, folder: Path) -> None:
        self.done: list[str] = []
        self._shell = shell
        self._folder = folder
        self._staying: dict[str, tuple[int, Path]] = {}

    async def run(self, line: str) -> str:
        """Type a line, wait until it is over (or ready, if it stays) and return what it printed."""
        self.done.append(line)
        for start, ready in STAYS.items():
            if line.startswith(start):
                return await self._stay(line, ready)
        code, out = await self._type(f"{{ {line}\n}} </dev/null", COMMAND_TIMEOUT_S)
        assert code == 0, f"{line} ended with {code}:\n{out}"
        assert "Traceback" not in out, f"{line}:\n{out}"
        return out

    async def _type(self, text: str, timeout_s: float) -> tuple[int, str]:
        assert self._shell.stdin
        assert self._shell.stdout
        self._shell.stdin.write(f"{text}\nprintf '\\n{OVER} %s\\n' $?\n".encode())
        said: list[str] = []
        async with asyncio.timeout(timeout_s):
            async for raw in self._shell.stdout:
                if (line := raw.decode(errors="replace")).startswith(OVER):
                    return int(line.removeprefix(OVER)), "".join(said)
                said.append(line)
        raise AssertionError(f"the shell has ended:\n{''.join(said)}")

    async def _stay(self, line: str, ready: str) -> str:
        said = self._folder / f"output-{len(self.done)}"
        said.touch()  # the shell makes it in its own time
        _, pid = await self._type(f"{line} </dev/null >{said} 2>&1 & echo $!", COMMAND_TIMEOUT_S)
        self._staying[line] = (int(pid), said)
        async with asyncio.timeout(READY_TIMEOUT_S):
            while ready not in said.read_text():
                code, _ = await self._type(f"kill -0 {pid.strip()} 2>&1", COMMAND_TIMEOUT_S)
                assert code == 0, f"{line} ended:\n{said.read_text()}"
                await asyncio.sleep(0.05)
        return said.read_text()

    async def close(self) -> None:
        """Press Ctrl-C in every command that is still running; each must end well, in time."""
        for pid, _ in self._staying.values():
            os.killpg(pid, signal.SIGINT)
        for line, (pid, said) in self._staying.items():
            code, _ = await self._type(f"wait {pid}", STOP_TIMEOUT_S)
            assert code == 0, f"{line} ended with {code}:\n{said.read_text()}"


@asynccontextmanager
async def terminal(folder: Path, *words: str, **env: str) -> AsyncIterator[Terminal]:
    """Open a shell in a folder, which is told these words first; whatever it started ends with it."""
    shell = await asyncio.create_subprocess_exec(
        *("bash", "--norc", "--noprofile"),
        cwd=folder,
        env={**os.environ, **env},  # noqa: TID251 - a child needs a PATH
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        limit=LONGEST_LINE,
    )
    opened = Terminal(shell, folder)
    try:
        # Each command is a group of its own, as at a keyboard.
        await opened._type("\n".join(["set -m", *words]), COMMAND_TIMEOUT_S)
        yield opened
        await opened.close()
    finally:
        family = descendants(shell.pid) if shell.returncode is None else []
        shell.kill()
        for process in await all_gone(family, 0):
            process.kill()
        await shell.communicate()
