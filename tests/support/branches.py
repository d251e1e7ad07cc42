"""A playbook and a branch of it in a deployment: forked, learning, and what the log says of both."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from combee.adapters.ports import PoisonError
from combee.log.commands.log_store import LogStore
from combee.log.commands.playbook import Commands, PreparedCommand
from combee_schemas.batch import Batch
from combee_schemas.command import Command
from combee_schemas.model import Prompt
from combee_schemas.plan import BranchSettings
from combee_schemas.playbook import Playbook
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME, outgoing, reflection
from support.models import ScriptedModel, echo, is_control

LINE = f"{NAME}@short"
BATCH = 3
SAME = "always the same"
"""A lesson that several reflections teach."""
OWN = BranchSettings(batch_size=2, copies=1, prompts="small")
FORK = Command(command_id="fork", playbook=NAME, kind="branch", branch="short", settings=OWN)
DELETE = Command(command_id="delete", playbook=LINE, kind="delete")


def unusable_on_the_branch(prompt: Prompt) -> Mapping[str, Any]:
    """Answer of lessons 10 to 12 what the playbook asks, whose batches are larger, and nothing else."""
    if is_control(prompt) or ("lesson 10" in prompt.user and "lesson 12" not in prompt.user):
        raise PoisonError("no usable reply")
    return echo(prompt)


async def publish(deployment: Deployment, numbers: Sequence[int], **fields: Any) -> None:
    await deployment.log.produce(*(outgoing(reflection(n, **fields)) for n in numbers))


async def learned(
    count: int = BATCH, model: ScriptedModel | None = None, trust: str = "team", **fields: Any
) -> Deployment:
    """Return a deployment whose playbook has a version, and reflections that wait."""
    deployment = Deployment(batch_size=BATCH, model=model, trust=trust)
    async with deployment.running():
        await publish(deployment, range(count), **fields)
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == count // BATCH)
        await deployment.until(lambda: not ledger.behind(deployment.log) or bool(count % BATCH))
    return deployment


def members(deployment: Deployment, line: str) -> list[str]:
    return [
        member.reflection_id for batch in ledger.batches(deployment.log, line) for member in batch.members
    ]


def ids(numbers: Sequence[int]) -> list[str]:
    return [f"r-{n}" for n in numbers]


def fork_of(deployment: Deployment) -> Batch:
    (fork,) = [batch for batch in ledger.batches(deployment.log, LINE) if batch.plan.branch is not None]
    return fork


def first(deployment: Deployment) -> Playbook:
    return ledger.versions(deployment.log, LINE)[0]


def waiting(deployment: Deployment) -> int:
    """Return how many reflections wait in the playbook's window."""
    assert deployment.shuffler is not None
    return sum(len(state.window(NAME)) for state in deployment.shuffler._states.values())


def both(deployment: Deployment, count: int) -> bool:
    """Return whether both lines have learned what they can of so many reflections after the fork."""
    return (
        len(members(deployment, NAME)) >= BATCH + count // BATCH * BATCH
        and len(members(deployment, LINE)) >= count // 2 * 2
        and len(ledger.versions(deployment.log)) == len(ledger.batches(deployment.log))
        and len(ledger.versions(deployment.log, LINE)) == len(ledger.batches(deployment.log, LINE))
    )


@asynccontextmanager
async def forking(
    count: int = BATCH, model: ScriptedModel | None = None, trust: str = "team"
) -> AsyncIterator[Deployment]:
    """Run a deployment whose playbook has a version, and a branch that began with it."""
    deployment = await learned(count, model, trust)
    async with deployment.running():
        await deployment.log.produce(outgoing(FORK))
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 1)
        yield deployment


async def forked(count: int = BATCH, model: ScriptedModel | None = None, trust: str = "team") -> Deployment:
    """Return such a deployment at rest."""
    async with forking(count, model, trust) as deployment:
        return deployment


async def ahead(
    numbers: Sequence[int] = (10, 11),
    model: ScriptedModel | None = None,
    trust: str = "team",
    **fields: Any,
) -> Deployment:
    """Return a deployment whose branch has learned what still waits for the playbook's next batch."""
    deployment = await forked(model=model, trust=trust)
    async with deployment.running():
        await publish(deployment, numbers, **fields)
        await deployment.until(lambda: len(members(deployment, LINE)) == len(numbers))
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 1 + len(numbers) // 2)
    return deployment


def commands(deployment: Deployment) -> Commands:
    return Commands(deployment.log, LogStore(deployment.log), deployment.clock, issued_by="user:test")


async def carried_out(deployment: Deployment, decision: PreparedCommand) -> None:
    """Send what was decided and wait for what it makes."""
    on = commands(deployment)
    assert decision.command is not None
    assert await on.outcome(await on.send(decision.command), timeout_s=10) is not None


def contents(deployment: Deployment, line: str = NAME) -> set[str]:
    return {entry.content for entry in ledger.latest(deployment.log, line).entries}


def refused(deployment: Deployment) -> list[str]:
    return [letter.reason for letter in ledger.dead_letters(deployment.log)]
