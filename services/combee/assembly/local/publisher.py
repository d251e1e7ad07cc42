"""The services that a command needs: running ones, or its own for the duration of the command."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

from combee.adapters.kafka import KafkaAdmin
from combee.adapters.ports import FatalError
from combee.assembly.backends import connection
from combee.assembly.local.stack import StackOptions, stack
from combee.assembly.local.stack_file import sole_stack, stack_is_running
from combee.process.settings.loading import Settings

MEMBERS_POLL_S = 0.2
PUBLISHER_WAIT_S = 3.0
OTHERS_S = 60.0
"""Seconds that another command may need for its own services on the same broker."""


@asynccontextmanager
async def ensure_publisher(
    settings: Settings, servers: str, tell: Callable[[str], None], roles: Sequence[str] = ("publish",)
) -> AsyncIterator[None]:
    """Ensure that publish, or other services, run: on the user's own embedded broker they are started if needed.

    ``tell`` is called with a line if the command has to wait.

    Raises
    ------
    FatalError
        If one of them does not run on a configured cluster.
    TransientError
        If that cluster does not tell which services run.
    """
    if settings.kafka.bootstrap_servers is None and not stack_is_running(settings):
        with tempfile.TemporaryDirectory(prefix="combee-publish-") as folder:
            options = StackOptions(
                settings=settings, bootstrap_servers=servers, folder=Path(folder), roles=tuple(roles)
            )
            async with (
                sole_stack(settings, "a combee command", Path(folder), wait_s=OTHERS_S, tell=tell),
                stack(options),
            ):
                yield
        return
    for role in roles:
        await _require(settings, servers, role)
    yield


async def _require(settings: Settings, servers: str, role: str) -> None:
    admin = KafkaAdmin(connection(settings, servers))
    end = monotonic() + PUBLISHER_WAIT_S
    while not await admin.members(role, within_s=PUBLISHER_WAIT_S):
        if monotonic() >= end:
            raise FatalError(
                f"no {role} service runs on {servers}, so no new version can be written: start 'combee up' or"
                f" 'combee worker {role}' there and try again"
            )
        await asyncio.sleep(MEMBERS_POLL_S)  # a broker does not announce new members
