"""A canary on a real broker: agents name themselves, a scorer signs outcomes, and control is killed in between."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from combee.log.history import newest_playbook
from combee.sdk import AsyncClient
from support.broker import Broker
from support.gates import contents
from support.ledger import NAME
from support.running import Running, running_stack
from support.running_gates import WITHIN_S, candidate_of, decisions

pytestmark = pytest.mark.timeout(300)
AGENTS, SECRET = 200, "a secret of the scorer, 32 characters"
CANARY = {"canary_share": 0.5, "gate_margin": 0.3}
"""Terms that need few agents."""


@asynccontextmanager
async def tried(kafka: Broker, prefix: str, folder: Path) -> AsyncIterator[Running]:
    """Run a deployment whose agents read version 1, and of which version 2 is a candidate."""
    sources = folder / "sources.toml"
    sources.write_text(f'[[sources]]\nname = "scorer"\nsecret = "{SECRET}"\n')
    settings: dict[str, Any] = {"gate": "canary", "sources_file": sources, **CANARY}
    roles = ("publish", "control")
    async with running_stack(kafka.bootstrap_servers, prefix, folder, roles=roles, **settings) as running:
        await candidate_of(running)
        yield running


async def runs(kafka: Broker, prefix: str, first: int, last: int, *, candidate: float) -> set[int]:
    """Let agents run, each shown what is its own; return the versions that they read."""
    rng, read = Random(first), set[int]()
    async with AsyncClient(
        kafka.bootstrap_servers, prefix=prefix, source="scorer", source_secret=SECRET
    ) as client:
        await client.ready(WITHIN_S)
        for number in range(first, last):
            view = await client.playbook(NAME, caller=f"agent-{number}")
            success = rng.random() < (candidate if view.version == 2 else 0.9)
            client.outcome(f"run-{number}", playbook=NAME, success=success, shown=view.shown())
            read.add(view.version)
        assert (await client.flush(WITHIN_S)).is_complete
    return read


async def decided(running: Running, count: int) -> None:
    async with asyncio.timeout(WITHIN_S):
        while len(await decisions(running)) < count:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)


async def test_a_worse_candidate_is_closed_by_itself_whoever_is_killed(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    async with tried(kafka, topic_prefix, tmp_path) as running:
        assert await runs(kafka, topic_prefix, 0, 10, candidate=0.2) == {1, 2}
        running.supervisor.send("control", signal.SIGKILL)
        await runs(kafka, topic_prefix, 10, AGENTS, candidate=0.2)
        running.supervisor.send("publish", signal.SIGKILL)
        await decided(running, 3)
        last = (await decisions(running))[-1]
        assert (last.decided, last.candidate, last.version, last.taken_back) == ("rejected", 2, 1, 1)
        assert last.reason.startswith("worse than version 1")
        newest = await newest_playbook(running.log, NAME)
        assert newest is not None
        assert contents(newest) == ["lesson 1"]
        assert await runs(kafka, topic_prefix, AGENTS, AGENTS + 20, candidate=0.2) == {1}
