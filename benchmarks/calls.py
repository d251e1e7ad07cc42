"""What a call of the model costs in processor time (docs/design/adr/0028)."""

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.rows import Row, row
from combee.adapters.openai.connection import Connection
from combee.adapters.openai.names import Server
from combee_schemas.model import request_body

TIMEOUT_S = 120.0
CALLS, AT_ONCE = 400, 20
CALL_BAR_MS = 1.2
"""Ours: the package's ``post`` and what stands around it."""
ANSWER_S = 0.05
MESSAGES = ({"role": "system", "content": "s" * 3_000}, {"role": "user", "content": "u" * 40_000})
SCHEMA = {"type": "object", "properties": {"items": {"type": "array"}}, "required": ["items"]}
PARAMETERS: Mapping[str, Any] = {
    "model": "fake",
    "temperature": 0.0,
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
    },
}
ANSWER = json.dumps(
    {
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "x" * 2_000}}
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }
).encode()

Call = Callable[[], Awaitable[object]]


async def measure(_bootstrap_servers: str, runs: int) -> list[Row]:
    """Return milliseconds of one core per call of 43 kB, 20 at a time; the server is another process."""
    async with _server() as url:
        ours = Connection(Server(url=url), timeout_s=60.0, max_reply_bytes=1 << 20)
        try:
            own = await _cost_ms(lambda: ours.ask(request_body(MESSAGES, PARAMETERS), MESSAGES), runs)
        finally:
            await ours.close()
    return [row("a call as services make it", own, "ms", CALL_BAR_MS)]


async def _cost_ms(call: Call, runs: int) -> list[float]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with slots:
            await call()

    costs = []
    for _ in range(runs + 1):
        began_s = time.process_time()
        await asyncio.gather(*(one() for _ in range(CALLS)))
        costs.append((time.process_time() - began_s) / CALLS * 1000)
    return costs[1:]  # the first opens connections


@asynccontextmanager
async def _server() -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "benchmarks.calls", stdout=PIPE)
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.terminate()
        await process.wait()


async def _serve() -> None:
    head = (
        f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(ANSWER)}\r\n\r\n".encode()
    )

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                asked = (await reader.readuntil(b"\r\n\r\n")).decode().lower().splitlines()
                length = next(line for line in asked if line.startswith("content-length:")).partition(":")[2]
                await reader.readexactly(int(length))
                await asyncio.sleep(ANSWER_S)
                writer.write(head + ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
