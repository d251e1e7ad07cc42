"""Verbs: what a person waits for, from the shell to the end of the process, on a deployment that runs."""

import asyncio
import socket
import sys
import time
from collections.abc import Mapping
from uuid import uuid4

from benchmarks.cluster import fresh, lessons, running_cluster
from benchmarks.rows import Row, row
from combee.adapters.ports import FatalError
from combee.process.settings.loading import environment

TIMEOUT_S = 900.0
WAIT_S, UNREACHABLE_S = 2.0, 5.0
"""Most seconds for a verb, and until it says that no Kafka answers."""
PROCESS_S = 120.0
BATCH = 20
BATCHES = 5
VERBS: Mapping[str, tuple[str, ...]] = {
    "doctor": ("doctor",),
    "forget --dry-run": ("forget", "--trace", "none", "--dry-run"),
    "top --once": ("top", "--once"),
    "status": ("status",),
    "playbook list": ("playbook", "list"),
    "ledger": ("ledger",),
}


async def measure(bootstrap_servers: str, runs: int) -> list[Row]:
    """Return the seconds of each verb; they take turns, so that all see the same machine."""
    taken: dict[str, list[float]] = {name: [] for name in (*VERBS, "replay")}
    prefix, name = f"bench-{uuid4().hex[:8]}", fresh("verbs")
    async with running_cluster(
        bootstrap_servers, topic_prefix=prefix, batch_size=BATCH, roles=ROLES
    ) as cluster:
        await cluster.publish(lessons(name, BATCH * BATCHES))
        await cluster.through(name, BATCHES)
        for number in range(runs + 1):
            for verb, arguments in VERBS.items():
                seconds = await _seconds(*arguments, servers=bootstrap_servers, prefix=prefix)
                taken[verb] += [seconds] if number else []  # the first fills the file cache
        for _ in range(runs):
            taken["replay"].append(
                await _seconds(
                    "replay",
                    name,
                    "--to",
                    f"{prefix}-{uuid4().hex[:6]}",
                    servers=bootstrap_servers,
                    prefix=prefix,
                )
            )
    silent = [await _until_said("status") for _ in range(runs)]
    return [
        *(
            row(f"combee {verb}", times, "s", WAIT_S if verb in VERBS else None)
            for verb, times in taken.items()
        ),
        row("combee status, until it says that no Kafka answers", silent, "s", UNREACHABLE_S),
    ]


ROLES = ("control", "publish", "scan", "shuffle", "reflect")


def _environment(servers: str, prefix: str) -> dict[str, str]:
    return {
        **environment(),
        "COMBEE_BOOTSTRAP_SERVERS": servers,
        "COMBEE_TOPIC_PREFIX": prefix,
        "COMBEE_MODEL": "simulated",
    }


async def _seconds(*arguments: str, servers: str, prefix: str) -> float:
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "combee.cli", *arguments),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=_environment(servers, prefix),
    )
    async with asyncio.timeout(PROCESS_S):
        _, said = await process.communicate()
    if process.returncode and arguments != VERBS["doctor"]:  # which finds that nothing serves this model
        raise FatalError(f"combee {' '.join(arguments)}: {said.decode(errors='replace')}")
    return time.monotonic() - began


async def _until_said(*arguments: str) -> float:
    """Return the seconds until a verb says something about a broker that is not there, and end it."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        unused.listen()  # it takes connections and never answers, as a broker that hangs
        servers = f"127.0.0.1:{unused.getsockname()[1]}"
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "combee.cli", *arguments),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=_environment(servers, "none"),
        )
        assert process.stderr is not None  # noqa: S101 - it is a pipe
        try:
            async with asyncio.timeout(PROCESS_S):
                while servers not in (await process.stderr.readline()).decode(errors="replace"):
                    if process.stderr.at_eof():
                        raise FatalError("it ended without a word about the broker")
            return time.monotonic() - began
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()
