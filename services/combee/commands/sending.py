"""Commands sent to publish, and what becomes of them."""

import asyncio
import getpass
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from combee.ports import FatalError, Log
from combee.settings.loading import Settings
from combee_schemas import topics
from combee_schemas.codec import CodecError
from combee_schemas.command import Command
from combee_schemas.playbook import Label, Playbook, label_key
from combee_schemas.topics import Topic

M = TypeVar("M", Playbook, Label)
MEMBERS_POLL_S = 0.2
PUBLISHER_WAIT_S = 3.0
OTHERS_S = 60.0
"""So long another command may need for services of its own on the same broker."""


def issuer() -> str:
    """Return who uses the command line, as command records name them."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        name = str(os.geteuid())
    return f"user:{name}@{socket.gethostname()}"


@asynccontextmanager
async def ensure_publisher(settings: Settings, servers: str) -> AsyncIterator[None]:
    """See to it that publish runs: on the user's own embedded broker it is started for the occasion.

    Raises
    ------
    FatalError
        If nobody runs it on a configured cluster.
    """
    from combee.cli.console import remark  # noqa: PLC0415 - --help stays quick
    from combee.local.stack import StackOptions, stack  # noqa: PLC0415 - --help stays quick
    from combee.local.stack_file import sole_stack, stack_is_running  # noqa: PLC0415 - --help stays quick

    if settings.kafka.bootstrap_servers is None and not stack_is_running(settings):
        with tempfile.TemporaryDirectory(prefix="combee-publish-") as folder:
            options = StackOptions(
                settings=settings, bootstrap_servers=servers, folder=Path(folder), roles=("publish",)
            )
            async with (
                sole_stack(settings, "a combee command", Path(folder), wait_s=OTHERS_S, tell=remark),
                stack(options),
            ):
                yield
        return
    await _require_publisher(settings, servers)
    yield


async def _require_publisher(settings: Settings, servers: str) -> None:
    from combee.adapters.kafka import KafkaAdmin  # noqa: PLC0415 - --help stays quick
    from combee.backends import connection  # noqa: PLC0415

    admin = KafkaAdmin(connection(settings, servers))
    try:
        async with asyncio.timeout(PUBLISHER_WAIT_S):
            while not await admin.members("publish"):  # noqa: ASYNC110 - a broker tells nobody who joined
                await asyncio.sleep(MEMBERS_POLL_S)
    except TimeoutError as error:
        raise FatalError(
            f"nobody runs publish on {servers}, so no new version can be written: start 'combee up' or"
            " 'combee worker publish' there and try again"
        ) from error


async def run_command(log: Log, command: Command, timeout_s: float) -> Playbook:
    """Send a command and return the version that it makes.

    Raises
    ------
    FatalError
        If publish refuses it, or there is no version after ``timeout_s``.
    """
    made = _Awaited(topics.HISTORY, command.playbook, "new version")
    return await _run(log, command, timeout_s, made)


async def run_promotion(log: Log, command: Command, timeout_s: float) -> Label:
    """Send a command that moves a label and return the label.

    Raises
    ------
    FatalError
        If publish refuses it, or the label has not moved after ``timeout_s``.
    """
    moved = _Awaited(topics.LABELS, label_key(command.playbook, command.label), f"label {command.label}")
    return await _run(log, command, timeout_s, moved)


@dataclass(frozen=True, slots=True)
class _Awaited(Generic[M]):
    """What a command's effect is."""

    topic: Topic[M]
    key: str
    told: str


async def _run(log: Log, command: Command, timeout_s: float, awaited: _Awaited[M]) -> M:
    command = command.model_copy(update={"issued_by": issuer()})
    since = {name: dict(await log.ends(name)) for name in (awaited.topic.name, topics.DEAD_LETTERS.name)}
    try:
        outgoing = topics.COMMANDS.record(command)
    except CodecError as error:
        raise FatalError(f"this {command.kind} of {command.playbook} cannot be sent: {error}") from error
    (offset,) = await log.produce(outgoing)
    made = asyncio.create_task(_made(log, command, since[awaited.topic.name], awaited))
    refused = asyncio.create_task(_refused(log, command, offset, since[topics.DEAD_LETTERS.name]))
    try:
        done, _ = await asyncio.wait({made, refused}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if made in done:
            return made.result()
        if refused in done:
            raise FatalError(f"publish refused it: {refused.result()}")
    finally:
        for task in (made, refused):
            task.cancel()
        await asyncio.gather(made, refused, return_exceptions=True)
    raise FatalError(
        f"{command.playbook} has no {awaited.told} after {timeout_s:.0f} s: the {command.kind} is in the log and"
        " takes effect when publish gets to it; 'combee status' shows its backlog, --timeout waits longer"
    )


async def _made(log: Log, command: Command, since: Mapping[int, int], awaited: _Awaited[M]) -> M:
    async with aclosing(log.follow(awaited.topic.name, since)) as changes:
        async for records in changes:
            for found in awaited.topic.under(awaited.key, records or ()):
                if command.command_id in found.commands:
                    return found
    raise AssertionError("a log is followed for ever")


async def _refused(log: Log, command: Command, offset: int, since: Mapping[int, int]) -> str:
    origin = topics.COMMANDS.name
    mine = (origin, await log.partition_for(origin, topics.COMMANDS.key_of(command)), offset)
    async with aclosing(log.follow(topics.DEAD_LETTERS.name, since)) as changes:
        async for records in changes:
            for letter in topics.DEAD_LETTERS.under(origin, records or ()):
                if (letter.origin_topic, letter.origin_partition, letter.origin_offset) == mine:
                    return letter.reason
    raise AssertionError("a log is followed for ever")
