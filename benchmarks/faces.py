"""Playbooks read through the faces: HTTP, MCP, sync and an archive, against a gateway in this process."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from combee.adapters.clock import SystemClock
from combee.adapters.http.queries import GatewayQueries
from combee.adapters.memory import MemoryLog
from combee.cli.sync import Files
from combee.gateway.context import Context, context_of
from combee.gateway.server import serve
from combee.integrations.mcp.deployment import GatewayDeployment
from combee.integrations.mcp.tools import ReadPlaybook, read_playbook
from combee.log.archive.restoring import read_contents
from combee.log.archive.writing import write_archive
from combee.process.settings.loading import load_settings
from combee.process.telemetry.logs import configure_logs
from combee.sdk import AsyncClient
from combee_schemas import topics
from combee_schemas.playbook import Playbook

WITHIN_S = 30.0
LOOK_EVERY_S = 0.01
HTTP, MCP = "HTTP: a client gets the playbook", "MCP: the tool `playbook`"
SYNC, ARCHIVE = "`combee sync --once`: a file", "an archive: written, then read and checked"


def face_times(playbook: Playbook, runs: int) -> Mapping[str, list[float]]:
    """Return the processor times, in milliseconds, of reading a playbook through each face.

    Each time it is a version that nobody has read; both sides are in this process.
    """
    configure_logs("error", json=False)
    return asyncio.run(_times(playbook, runs))


async def _times(playbook: Playbook, runs: int) -> Mapping[str, list[float]]:
    times: dict[str, list[float]] = defaultdict(list)
    log = MemoryLog(SystemClock(), partitions=1)
    with TemporaryDirectory() as folder:
        async with (
            _served(log) as (address, context),
            _readers(address, playbook.name, Path(folder)) as reading,
        ):
            for run in range(runs):
                for number, (face, read) in enumerate(reading.items(), 1 + run * len(reading)):
                    await _publish(log, playbook.model_copy(update={"version": number}))
                    await _known(context, playbook.name, number)
                    times[face].append(await _timed(read))
        for run in range(runs):
            alone, path = MemoryLog(SystemClock(), partitions=1), Path(folder, f"{run}.archive")
            await _publish(alone, playbook)
            times[ARCHIVE].append(await _timed(partial(_archived, alone, path)))
    return times


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.process_time()
    await work()
    return (time.process_time() - began) * 1e3


@asynccontextmanager
async def _readers(
    address: str, name: str, folder: Path
) -> AsyncIterator[Mapping[str, Callable[[], Awaitable[object]]]]:
    queries, deployment = GatewayQueries(address), GatewayDeployment(address, None)

    async def sync() -> None:
        async with AsyncClient(address) as client:
            view = await client.playbook(name, timeout_s=WITHIN_S)
        with redirect_stdout(StringIO()):  # it says what it wrote
            Files(name, [folder / "AGENTS.md"]).update(view.snapshot)

    try:
        yield {
            HTTP: lambda: queries.playbook(name),
            MCP: lambda: read_playbook(deployment, ReadPlaybook(playbook=name)),
            SYNC: sync,
        }
    finally:
        await queries.close()
        await deployment.close()


async def _archived(log: MemoryLog, path: Path) -> None:
    await write_archive(log, path, prefix="bench", configs={}, clock=SystemClock())
    read_contents(path)


@asynccontextmanager
async def _served(log: MemoryLog) -> AsyncIterator[tuple[str, Context]]:
    context = context_of(log, load_settings(gateway_port=0), SystemClock())
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(context, stop, on_ready=ready.set_result))
    try:
        async with asyncio.timeout(WITHIN_S):
            yield await ready, context
    finally:
        stop.set()
        await serving


async def _publish(log: MemoryLog, playbook: Playbook) -> None:
    """Write a version as publish does: history first, its place into the snapshot."""
    transactor = await log.transactor("publish-bench")
    async with transactor.transaction() as transaction:
        (offset,) = await transaction.send(topics.HISTORY.record(playbook))
        placed = playbook.model_copy(update={"history_offset": offset})
        await transaction.send(topics.PLAYBOOKS.record(placed))
    await transactor.close()


async def _known(context: Context, name: str, number: int) -> None:
    while context.playbooks.latest(name).version < number:  # noqa: ASYNC110 - a view has no event
        await asyncio.sleep(LOOK_EVERY_S)
