"""Every curl line of docs/guide/http.md does what the page says."""

import asyncio
import os

from combee.adapters.clock import SystemClock
from combee.adapters.memory import MemoryLog
from support.gateway import published, publishing, served, version
from support.shown import ROOT, command_lines

ENDLESS = " -N "
TIMED_OUT = 28
LINES = [
    line
    for line in command_lines((ROOT / "docs" / "guide" / "http.md").read_text("utf-8"))
    if line.startswith("curl")
]


async def _run(line: str, address: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", line.replace("curl ", "curl -sS --max-time 2 ", 1) if ENDLESS in line else line),
        env={**os.environ, "GATEWAY": address},  # noqa: TID251 - a child needs a PATH
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, out.decode()


async def test_every_curl_line_of_the_page_works() -> None:
    log = MemoryLog(SystemClock())
    await published(log, version("support/refunds", 1))
    async with publishing(log), served(log) as (address, _):
        for line in LINES:
            code, said = await _run(line, address)
            assert code == (TIMED_OUT if ENDLESS in line else 0), f"{line}\n{said}"
            assert said, line
    assert len(LINES) > 15
