"""The blocks of docs/sdk.md run as they stand there, in order, on a deployment in memory."""

import asyncio
from collections.abc import Callable

import pytest

from combee.sdk import MemoryTransport, face
from support.fake_openai import fake_openai, says
from support.shown import FENCE, ROOT

PAGE = ROOT / "docs" / "sdk.md"


def blocks() -> list[str]:
    return [body for language, body in FENCE.findall(PAGE.read_text("utf-8")) if language == "python"]


def run_all() -> None:
    namespace: dict[str, object] = {}
    for number, body in enumerate(blocks(), 1):
        exec(compile(body, f"docs/sdk.md, block {number}", "exec"), namespace)  # noqa: S102 - our own page


async def test_every_block_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = MemoryTransport()
    memory.put_playbook("support/refunds", "Ask a manager above 100.")

    def connecting(_address: object) -> Callable[[], MemoryTransport]:
        return lambda: memory

    monkeypatch.setattr(face, "connecting", connecting)
    async with fake_openai() as server:
        server.always = says("No.")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        await asyncio.to_thread(run_all)
    assert len(blocks()) >= 7
    assert [one.task for one in memory.traces] == ["Refund order 7", "Refund order 8", "Refund order 9?"]
    assert [one.key_insight for one in memory.reflections] == ["Refunds above 100 need a manager."]
