"""The command line in processes that fork from a server which has imported it: an import takes most of a short verb.

Each process has a pid, a session, an environment, streams and an exit code of its own, as any other. Only its start
differs: what a test says of that needs a process that starts anew. The services that a verb starts fork from the same
server.
"""

import asyncio
import multiprocessing
import os
import shlex
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from multiprocessing import current_process, forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from combee.assembly.local.supervisor import Process, Supervisor
from combee.cli.verbs import VERBS
from support import forked_verb

MOST_FILES, MOST_BYTES = 256, 1 << 18
SEQUENCED = (socket.AF_UNIX, socket.SOCK_SEQPACKET)
SERVER: Any = forkserver._forkserver
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "pytest",  # where it is the main module, each process would import it
        "combee.cli.__main__",
        "combee.assembly.compose",
        "combee.gateway.server",
        "combee.shuffle.app",
        "combee_sim.server.server",
        *(verb.module for name, verb in VERBS.items() if name != "experiment"),
    ]
)


class Forked:
    """A running process, in as many of asyncio's words as tests use."""

    def __init__(self, process: ForkServerProcess, stdin: Connection | None = None) -> None:
        self.pid = process.pid or 0
        self.returncode: int | None = None
        self.stdout, self.stderr = asyncio.StreamReader(), asyncio.StreamReader()
        self._stdin = stdin
        self._process = process
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(process.sentinel, self._end)

    def _end(self) -> None:
        self._loop.remove_reader(self._process.sentinel)
        self.returncode = self._process.exitcode
        self._process.close()
        self._ended.set()

    async def wait(self) -> int | None:
        await self._ended.wait()
        return self.returncode

    async def communicate(self, stdin: bytes = b"") -> tuple[bytes, bytes]:
        if self._stdin:
            pipe, self._stdin = self._stdin, None
            await asyncio.to_thread(_write, pipe, stdin)
        out, err = await asyncio.gather(self.stdout.read(), self.stderr.read())
        await self.wait()
        return out, err

    def send_signal(self, sign: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sign)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _write(pipe: Connection, text: bytes) -> None:
    with pipe, suppress(BrokenPipeError), os.fdopen(os.dup(pipe.fileno()), "wb") as file:
        file.write(text)


async def piped(*arguments: str, env: Mapping[str, str]) -> Forked:
    """Start ``combee``; its streams are pipes."""
    (stdin, our_in), (our_out, stdout), (our_err, stderr) = (CONTEXT.Pipe(duplex=False) for _ in range(3))
    forked = Forked(await _start(arguments, env, (stdin, stdout, stderr)), our_in)
    await _fill(forked.stdout, our_out)
    await _fill(forked.stderr, our_err)
    return forked


async def _fill(reader: asyncio.StreamReader, pipe: Connection) -> None:
    protocol = asyncio.StreamReaderProtocol(reader)
    with pipe:
        source = os.fdopen(os.dup(pipe.fileno()), "rb", buffering=0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, source)


async def logged(*arguments: str, env: Mapping[str, str], log: Path) -> Forked:
    """Start ``combee``; what it says is added to a file."""
    return Forked(await _start(arguments, env, (_nothing(), _appended(log), _appended(log))))


class ForkingSupervisor(Supervisor):
    """Starts its processes from the server."""

    async def _spawn(self, process: Process) -> asyncio.subprocess.Process:
        arguments = (*process.arguments, "--die-with-parent")
        env = {**process.env, "COMBEE_READY_FILE": str(process.ready_file)}
        log = self.log_file(process.name)
        if self._on_line is None:
            return cast("asyncio.subprocess.Process", await logged(*arguments, env=env, log=log))
        heard, err = CONTEXT.Pipe(duplex=False)
        forked = Forked(await _start(arguments, env, (_nothing(), _appended(log), err)))
        await _fill(forked.stderr, heard)
        return cast("asyncio.subprocess.Process", forked)


def _nothing() -> Connection:
    return Connection(os.open(os.devnull, os.O_RDONLY), writable=False)


def _appended(file: Path) -> Connection:
    return Connection(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT), readable=False)


@asynccontextmanager
async def typed() -> AsyncIterator[str]:
    """Yield the words of a shell that make ``combee`` one of its functions, which forks what is typed."""
    loop, running = asyncio.get_running_loop(), set[asyncio.Task[None]]()

    def accept() -> None:
        verb, _ = door.accept()
        task = loop.create_task(_run_typed(verb))
        running.add(task)

    with TemporaryDirectory(prefix="combee-typed-") as folder, socket.socket(*SEQUENCED) as door:
        door.bind(f"{folder}/door")
        door.listen()
        loop.add_reader(door, accept)
        try:
            command = shlex.join([sys.executable, "-I", "-S", forked_verb.__file__, f"{folder}/door"])
            yield f'combee() {{ {command} "$@"; }}'
        finally:
            loop.remove_reader(door)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


async def _run_typed(verb: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with verb:
        text, files, _, _ = await asyncio.to_thread(socket.recv_fds, verb, MOST_BYTES, len("ioe"))
        folder, count, *words = text.decode().split("\0")
        arguments, env = words[: int(count)], dict(word.split("=", 1) for word in words[int(count) :])
        streams = [Connection(files[0], writable=False), *(Connection(n, readable=False) for n in files[1:])]
        forked = Forked(await _start(arguments, env, streams, folder))

        def pass_on() -> None:
            if sign := verb.recv(1):
                forked.send_signal(sign[0])
            else:
                loop.remove_reader(verb)

        loop.add_reader(verb, pass_on)
        try:
            code = await forked.wait() or 0
        finally:
            loop.remove_reader(verb)
            forked.terminate()
        verb.send(str(code if code >= 0 else 128 - code).encode())  # as a shell tells of a signal


async def _start(
    arguments: Sequence[str], env: Mapping[str, str], streams: Sequence[Connection], folder: str = "."
) -> ForkServerProcess:
    await asyncio.to_thread(forkserver.ensure_running)
    address = SERVER._forkserver_address
    started = CONTEXT.Process(target=_run, args=(arguments, dict(env), streams, folder, address), daemon=True)
    await asyncio.to_thread(started.start)  # the first one waits for the server
    for stream in streams:
        stream.close()
    return started


def _run(
    arguments: Sequence[str], env: Mapping[str, str], streams: Sequence[Connection], folder: str, address: str
) -> None:
    from combee.cli.__main__ import main  # noqa: PLC0415 - in the forked process only

    os.setsid()
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
    os.closerange(3, MOST_FILES)  # the server would outlive us as long as its pipe is open here
    # The dashboard's library wants a tracker of its own: the server's was behind one of these files.
    tracker: Any = resource_tracker._resource_tracker
    tracker._fd = tracker._pid = None
    _reach(address)
    sys.stdin = os.fdopen(0, closefd=False)
    os.environ.clear()  # noqa: TID251 - it is the process's own
    os.environ.update(env)  # noqa: TID251 - the same
    sys.argv = ["combee", *arguments]
    main()


def _reach(address: str) -> None:
    """Let this process, which was forked, start its services from the server that it is of."""
    SERVER._forkserver_address, SERVER._forkserver_alive_fd = address, os.open(os.devnull, os.O_RDONLY)
    SERVER.ensure_running = lambda: None  # no child of ours
    current_process()._config["daemon"] = False  # type: ignore[attr-defined]  # one may have no children
    Supervisor._spawn = ForkingSupervisor._spawn  # type: ignore[assignment,method-assign]
