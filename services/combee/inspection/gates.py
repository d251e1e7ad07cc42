"""The gates of a deployment, from the topic of labels: what agents read, and what is being judged."""

from contextlib import aclosing

from combee.core.gate.gate import Gate, gates_of
from combee.history import all_labels, messages
from combee.ports import Log
from combee_schemas import topics
from combee_schemas.gate import Decision


async def gates(log: Log) -> dict[str, Gate]:
    """Return the gates by playbook."""
    return gates_of(await all_labels(log))


async def decisions_of(log: Log, name: str) -> list[Decision]:
    """Return what was decided at a playbook's gate, oldest first."""
    async with aclosing(messages(log, topics.DECISIONS, name)) as read:
        return [decision async for decision in read]
