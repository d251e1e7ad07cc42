"""The gate on a real broker: a judge of its own, a person at the command line, and kills in between."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from combee.log.history import newest_playbook
from combee.log.inspection.audit import audit
from support import exam
from support.broker import Broker
from support.cli import combee
from support.gates import contents
from support.ledger import NAME
from support.running import Running, running_stack
from support.running_gates import WITHIN_S, decisions, learned, until

pytestmark = pytest.mark.timeout(300)


@asynccontextmanager
async def gated(kafka: Broker, prefix: str, folder: Path, judges: str) -> AsyncIterator[Running]:
    questions = folder / "heldout.jsonl"
    questions.write_text(exam.lines())
    roles = ("publish", "evaluate") if "evaluate" in judges else ("publish",)
    async with running_stack(
        kafka.bootstrap_servers,
        prefix,
        folder,
        roles=roles,
        gate=judges,
        eval_function="support.exam:score",
        eval_questions=questions,
    ) as running:
        yield running


async def decided(running: Running) -> list[tuple[str, int]]:
    return [(each.decided, each.candidate) for each in await decisions(running)]


async def balanced(running: Running) -> bool:
    report = await audit(running.log)
    return [text for text in report.violations if text.startswith("decision")] == []


def at_the_shell(kafka: Broker, prefix: str, folder: Path) -> Callable[..., Any]:
    async def run(*arguments: str) -> dict[str, Any]:
        env = {"COMBEE_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "COMBEE_TOPIC_PREFIX": prefix}
        ended = await combee(*arguments, "--json", data_dir=folder / "data", **env)
        assert ended.code == 0, ended.err
        return ended.json()

    return run


async def test_a_worse_candidate_is_closed_by_itself_whoever_is_killed(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    async with gated(kafka, topic_prefix, tmp_path, "evaluate") as running:
        await learned(running, 1)
        await until(running, (1, 0))
        await learned(running, 2)
        running.supervisor.send("evaluate", signal.SIGKILL)
        running.supervisor.send("publish", signal.SIGKILL)
        await learned(running, 3)
        # Version 2 is rejected; what is left of 3 without it is judged, and accepted.
        async with asyncio.timeout(WITHIN_S):
            while len(await decisions(running)) < 4:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.1)
        newest = await newest_playbook(running.log, NAME)
        assert newest is not None
        assert contents(newest) == ["lesson 1", "lesson 3"]
        await until(running, (newest.version, 0))
        kinds = [kind for kind, _ in await decided(running)]
        assert kinds == ["opened", "accepted", "rejected", "accepted"]
        assert await balanced(running)


async def test_a_person_approves_and_rejects_at_the_command_line(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    run = at_the_shell(kafka, topic_prefix, tmp_path)
    async with gated(kafka, topic_prefix, tmp_path, "evaluate,approve") as running:
        await learned(running, 1)
        await until(running, (0, 1))
        (listed,) = await run("review")
        assert (listed["name"], listed["candidate"], listed["production"]) == (NAME, 1, 0)
        assert (await run("review", NAME, "--yes"))["said"] == "approve"
        await until(running, (1, 0))
        assert (await run("playbook", "show", NAME))["version"] == 1

        await learned(running, 2, 4)
        await until(running, (1, 2))
        said = await run("review", NAME, "--reject", "--reason", "not ours")
        assert (said["said"], said["reads"]) == ("reject", 1)
        await until(running, (1, 0))
        assert (await run("playbook", "show", NAME))["version"] == 1
        newest = await run("playbook", "show", NAME, "--label", "latest")
        assert [entry["content"] for entry in newest["entries"]] == ["lesson 1"]
        assert await decided(running) == [("opened", 0), ("accepted", 1), ("rejected", 2)]
        assert await balanced(running)
