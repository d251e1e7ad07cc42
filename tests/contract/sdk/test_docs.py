"""The blocks of docs/guide/sdk.md run as they stand there, in order, beside a gateway and the stand-in model."""

import asyncio
from typing import Any

from combee.adapters.clock import SystemClock
from combee.adapters.memory import MemoryLog
from combee.process.settings.gateway import GatewaySettings
from combee_sim.server.server import running
from combee_sim.server.standin import SimOptions
from support.gateway import published, served, version
from support.shown import FENCE, ROOT

PAGE = ROOT / "docs" / "guide" / "sdk.md"
GATEWAY, STAND_IN = "http://127.0.0.1:8750", "http://127.0.0.1:8700/v1"


def blocks() -> list[str]:
    return [body for language, body in FENCE.findall(PAGE.read_text("utf-8")) if language == "python"]


def run_all(gateway: str, stand_in: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    for number, body in enumerate(blocks(), 1):
        placed = body.replace(GATEWAY, gateway).replace(STAND_IN, stand_in)
        exec(compile(placed, f"docs/guide/sdk.md, block {number}", "exec"), namespace)  # noqa: S102 - our own page
    return namespace


async def test_every_block_runs_beside_what_up_starts() -> None:
    log = MemoryLog(SystemClock())
    await published(log, version("support/refunds", 1, "PlaybookRef a manager above 100."))
    async with running(SimOptions()) as stand_in, served(log) as (gateway, _):
        found = await asyncio.to_thread(run_all, gateway, stand_in)

    assert len(blocks()) >= 7
    assert found["playbook"].version == 1
    # One reflection, two traces of the page's own, and one of each call of the model.
    assert (found["counts"].delivered, found["counts"].dropped) == (5, 0)


def test_the_page_names_the_address_at_which_up_serves() -> None:
    assert f'Client("{GATEWAY}")' in PAGE.read_text("utf-8")
    assert GatewaySettings().gateway_port in {None, 8750}  # None: this one where it is free
