"""A gated deployment on a real broker: what it learns, and what it says of its gate."""

import asyncio

from combee.core.gate.gate import gates_of
from combee.log.history import all_labels
from combee_schemas import topics
from combee_schemas.command import Command
from combee_schemas.gate import Decision
from support.gates import add
from support.gates import update as batch
from support.ledger import NAME
from support.planned import manifest_of
from support.running import Running

WITHIN_S = 90.0


async def learned(running: Running, number: int, lesson: int = 0) -> None:
    """Let a batch teach a lesson, by default its own, as scan would."""
    lesson = lesson or number
    update = batch(number, add(f"lesson {lesson}", f"r-{lesson}"))
    (offset,) = await running.log.produce(topics.BATCHES.record(manifest_of(update)))
    placed = update.model_copy(update={"manifest_offset": offset})
    await running.log.produce(topics.UPDATES.record(placed))


async def places(running: Running) -> tuple[int, int]:
    """Return production's version and the candidate's; 0: none."""
    gate = gates_of(await all_labels(running.log)).get(NAME)
    if gate is None:
        return 0, 0
    return gate.production.version, gate.candidate.version if gate.candidate else 0


async def until(running: Running, wanted: tuple[int, int]) -> None:
    """Wait until the gate stands so."""
    async with asyncio.timeout(WITHIN_S):
        while await places(running) != wanted:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)


async def candidate_of(running: Running) -> None:
    """Let agents read version 1, and make version 2 the candidate."""
    await learned(running, 1)
    await until(running, (0, 1))
    promote = Command(command_id="c-1", playbook=NAME, kind="promote", label="production", version=1)
    await running.log.produce(topics.COMMANDS.record(promote))
    await until(running, (1, 0))
    await learned(running, 2)
    await until(running, (1, 2))


async def decisions(running: Running) -> list[Decision]:
    """Return what was decided, oldest first."""
    return [each for each in await running.messages(topics.DECISIONS) if isinstance(each, Decision)]
