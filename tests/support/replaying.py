"""A log that is learned again by a second deployment."""

from combee.cli.replay.replaying import Replay, Replayed
from support.deployment import Deployment
from support.ledger import NAME


async def relearned(
    first: Deployment, *, recorded: bool = True, **batch: object
) -> tuple[Deployment, Replayed]:
    """Return a second deployment that has learned the first one's log, and what came of it."""
    second = Deployment(**{"batch_size": 11, **batch})  # type: ignore[arg-type]
    replay = Replay(first.log, NAME, recorded=recorded, timeout_s=5)
    await replay.read()
    roles = ["publish", "shuffle"] if recorded else ["publish", "scan", "shuffle"]
    async with second.running(roles):
        found = await replay.run(second.log)
    return second, found
