"""The command line in processes that fork from a server which has imported it: an import takes most of a short verb.

Each process has a pid, a session, an environment, streams and an exit code of its own, as any other. Only its start
differs: what a test says of that needs a process that starts anew. The services that a verb starts fork from the same
server.
"""

import asyncio
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing import current_process, forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any, cast

from combee.cli.verbs import VERBS
from combee.local.supervisor import Process, Supervisor

MOST_FILES = 256
SERVER: Any = forkserver._forkserver
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "pytest",  # where it is the main module, each process would import it
        "combee.cli.__main__",
        "combee.compose",
        "combee.gateway.server",
        "combee.shuffle.app",
        "combee.sim.server.server",
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
    for reader, pipe in ((forked.stdout, our_out), (forked.stderr, our_err)):
        protocol = asyncio.StreamReaderProtocol(reader)
        with pipe:
            source = os.fdopen(os.dup(pipe.fileno()), "rb", buffering=0)
        await asyncio.get_running_loop().connect_read_pipe(lambda it=protocol: it, source)  # type: ignore[misc]
    return forked


SPAWN = Supervisor._spawn


class ForkingSupervisor(Supervisor):
    """Starts its processes from the server, unless somebody listens to them."""

    async def _spawn(self, process: Process) -> asyncio.subprocess.Process:
        if self._on_line:
            return await SPAWN(self, process)
        stdin = Connection(os.open(os.devnull, os.O_RDONLY), writable=False)
        log = self.log_file(process.name)
        outputs = [
            Connection(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), readable=False) for _ in "oe"
        ]
        env = {**process.env, "COMBEE_READY_FILE": str(process.ready_file)}
        started = await _start((*process.arguments, "--die-with-parent"), env, (stdin, *outputs))
        return cast("asyncio.subprocess.Process", Forked(started))


async def _start(
    arguments: Sequence[str], env: Mapping[str, str], streams: Sequence[Connection]
) -> ForkServerProcess:
    await asyncio.to_thread(forkserver.ensure_running)
    address = SERVER._forkserver_address
    started = CONTEXT.Process(target=_run, args=(arguments, dict(env), streams, address), daemon=True)
    await asyncio.to_thread(started.start)  # the first one waits for the server
    for stream in streams:
        stream.close()
    return started


def _run(
    arguments: Sequence[str], env: Mapping[str, str], streams: Sequence[Connection], address: str
) -> None:
    from combee.cli.__main__ import main  # noqa: PLC0415 - in the forked process only

    os.setsid()
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
    Supervisor._spawn = ForkingSupervisor._spawn  # type: ignore[method-assign, assignment]
