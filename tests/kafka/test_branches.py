"""A branch on real Kafka: forked and adopted while services are killed, nothing lost or counted twice."""

import asyncio
import signal
from pathlib import Path

import pytest

from combee.adapters.clock import SystemClock
from combee.core.commands import RefusedError
from combee.log.commands.log_store import LogStore
from combee.log.commands.playbook import Commands
from combee.log.inspection.audit import audit
from combee.log.inspection.lineage import lineage
from combee_schemas import topics
from combee_schemas.command import Command
from combee_schemas.plan import BranchSettings
from combee_schemas.playbook import Playbook
from combee_schemas.topics import outgoing
from support.broker import Broker
from support.running import PLAYBOOK, Running, running_stack, traces

LINE = f"{PLAYBOOK}@short"
FIRST, COUNT, SIZE, OWN_SIZE = 10, 60, 10, 5
FORK = Command(
    command_id="fork",
    playbook=PLAYBOOK,
    kind="branch",
    branch="short",
    settings=BranchSettings(batch_size=OWN_SIZE, copies=1),
)


async def learned(running: Running, line: str) -> int:
    """Return how many reflections are in a line's versions; −1: it has none."""
    versions = await running.messages(topics.HISTORY)
    own = [version for version in versions if isinstance(version, Playbook) and version.name == line]
    return sum(version.reflections for version in own) if own else -1


async def until_learned(running: Running, line: str, count: int) -> None:
    async with asyncio.timeout(90):
        while await learned(running, line) < count:  # noqa: ASYNC110 - the condition is in the log
            await asyncio.sleep(0.2)


async def adopted_under_kills(running: Running) -> None:
    """Adopt the branch while publish is killed; its lessons lead to the branch's batches."""
    commands = Commands(running.log, LogStore(running.log), SystemClock(), issued_by="user:test")
    decision = await commands.adopt(PLAYBOOK, LINE)
    assert decision.command is not None
    sent = await commands.send(decision.command)
    running.supervisor.send("publish", signal.SIGKILL)
    adopted = await commands.outcome(sent, timeout_s=60)
    assert isinstance(adopted, Playbook)
    assert adopted.adopted is not None
    origins = [
        await lineage(running.log, PLAYBOOK, entry.id, traces=False, on_progress=lambda *_: None)
        for entry in adopted.entries[-3:]
    ]
    lines = {source.line for origin in origins for source in origin.sources if source.reflection}
    assert LINE in lines
    with pytest.raises(RefusedError, match="delete them first"):
        await commands.delete(PLAYBOOK)


@pytest.mark.timeout(240)
async def test_forked_under_load_and_kills_each_line_has_each_reflection_once(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    where = (kafka.bootstrap_servers, topic_prefix)
    early = list(map(outgoing, traces(FIRST, seed=1).values()))
    late = list(map(outgoing, traces(COUNT, seed=2).values()))
    async with running_stack(*where, tmp_path, batch_size=SIZE, max_wait_s=1, latency="0") as running:
        await running.log.produce(*early)
        await until_learned(running, PLAYBOOK, FIRST)
        await running.log.produce(*late[: COUNT // 2], topics.COMMANDS.record(FORK))
        for name in ("shuffle", "publish"):
            running.supervisor.send(name, signal.SIGKILL)
        await until_learned(running, LINE, 0)
        running.supervisor.send("shuffle", signal.SIGKILL)
        await running.log.produce(*late[COUNT // 2 :])
        await until_learned(running, PLAYBOOK, FIRST + COUNT)
        first = next(
            version.batch.plan
            for version in await running.messages(topics.HISTORY)
            if isinstance(version, Playbook) and version.name == LINE and version.batch
        )
        assert first.branch is not None
        inherited = sum(
            batch.plan.reflections  # type: ignore[attr-defined]
            for batch in await running.messages(topics.BATCHES)
            if batch.plan.playbook == PLAYBOOK and batch.plan.sequence <= first.branch.sequence  # type: ignore[attr-defined]
        )
        await until_learned(running, LINE, FIRST + COUNT - inherited)
        await adopted_under_kills(running)
        found = await audit(running.log)
    assert (found.violations, found.lost, found.double, found.pending) == ((), 0, 0, 0)
    assert found.applied == 2 * (FIRST + COUNT) - inherited
