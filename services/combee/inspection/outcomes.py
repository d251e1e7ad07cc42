"""The statistics of outcomes, from the topics."""

from combee.history import messages, whole
from combee.ports import Log
from combee_schemas import topics
from combee_schemas.outcome import OutcomeStatistics


async def outcomes_by_line(log: Log) -> dict[str, OutcomeStatistics]:
    """Return the newest statistics of each playbook and branch."""
    read = map(topics.OUTCOME_STATISTICS.read_or_none, await whole(log, topics.OUTCOME_STATISTICS))
    return {statistics.line: statistics for statistics in read if statistics is not None}


async def outcomes_of(log: Log, line: str) -> OutcomeStatistics | None:
    """Return the newest statistics of one of them; None if no run was told of."""
    newest = None
    async for statistics in messages(log, topics.OUTCOME_STATISTICS, line):
        newest = statistics
    return newest
