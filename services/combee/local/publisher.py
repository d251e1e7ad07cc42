"""A publish service for a command: one that runs already, or one of one's own for as long as the command takes."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from combee.adapters.kafka import KafkaAdmin
from combee.backends import connection
from combee.local.stack import StackOptions, stack
from combee.local.stack_file import sole_stack, stack_is_running
from combee.ports import FatalError, TransientError
from combee.settings.loading import Settings

MEMBERS_POLL_S = 0.2
PUBLISHER_WAIT_S = 3.0
OTHERS_S = 60.0
"""So long another command may need for services of its own on the same broker."""


@asynccontextmanager
async def ensure_publisher(
    settings: Settings, servers: str, tell: Callable[[str], None]
) -> AsyncIterator[None]:
    """See to it that publish runs: on the user's own embedded broker it is started for the occasion.

    ``tell`` hears what is waited for.

    Raises
    ------
    FatalError
        If nobody runs it on a configured cluster.
    """
    if settings.kafka.bootstrap_servers is None and not stack_is_running(settings):
        with tempfile.TemporaryDirectory(prefix="combee-publish-") as folder:
            options = StackOptions(
                settings=settings, bootstrap_servers=servers, folder=Path(folder), roles=("publish",)
            )
            async with (
                sole_stack(settings, "a combee command", Path(folder), wait_s=OTHERS_S, tell=tell),
                stack(options),
            ):
                yield
        return
    await _require_publisher(settings, servers)
    yield


async def _require_publisher(settings: Settings, servers: str) -> None:
    admin = KafkaAdmin(connection(settings, servers))
    try:
        async with asyncio.timeout(PUBLISHER_WAIT_S):
            while not await _is_there(admin):  # noqa: ASYNC110 - a broker tells nobody who joined
                await asyncio.sleep(MEMBERS_POLL_S)
    except TimeoutError as error:
        raise FatalError(
            f"nobody runs publish on {servers}, so no new version can be written: start 'combee up' or"
            " 'combee worker publish' there and try again"
        ) from error


async def _is_there(admin: KafkaAdmin) -> bool:
    try:
        return bool(await admin.members("publish"))
    except TransientError:  # the group's coordinator is on its way
        return False
