"""A shadow of one playbook, learned by separate services under a separate prefix."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from combee.adapters.ports import FatalError, Log
from combee.assembly.local.stack import StackOptions, stack
from combee.assembly.local.stack_file import sole_stack
from combee.cli.replay.recorded import again, records_at
from combee.cli.shared.console import remark
from combee.log.inspection.tracker import StalledError
from combee.process.settings.loading import Settings
from combee_schemas import topics
from combee_schemas.base import Message
from combee_schemas.batch import Batch
from combee_schemas.plan import LARGEST_BATCH
from combee_schemas.topics import Topic

NO_CAP = 10**15
NEVER_S = 1e9
M = TypeVar("M", bound=Message)


async def layout(log: Log) -> dict[str, int]:
    """Return the original's partition counts, which a shadow copies."""
    return {
        "partitions": await log.partitions(topics.REFLECTIONS.name),
        "scan_partitions": await log.partitions(topics.SCAN[0].name),
    }


async def shadow_settings(
    settings: Settings, log: Log, prefix: str, originals: Sequence[Batch], **batch: Any
) -> Settings:
    """Return settings under which only the replay closes windows, on topics of the same layout, without caps.

    Windows are larger than any batch of the ``originals``; ``batch`` are further batch settings.
    """
    largest = max((settings.batch.batch_size, *(len(original.members) for original in originals)))
    # An omitted cap would take the environment's value.
    caps = {name: NO_CAP for name in ("daily_tokens", "daily_cost") if getattr(settings.spend, name)}
    closing = {
        "batch_size": min(LARGEST_BATCH, largest + 1),
        "max_wait_s": NEVER_S,
        "consolidate_above": 0.0,  # the replay repeats automatic consolidations as steps
    }
    return replace(
        settings,
        kafka=settings.kafka.model_copy(update={**await layout(log), "topic_prefix": prefix}),
        batch=settings.batch.model_copy(update={**closing, **batch}),
        sizing=settings.sizing.model_copy(update={"batch_policy": "configured"}),
        spend=settings.spend.model_copy(update=caps),
    )


@asynccontextmanager
async def services(
    settings: Settings,
    servers: str,
    *,
    ask: bool,
    simulated: bool,
    sim_arguments: Sequence[str] = (),
    answers_from: str | None = None,
) -> AsyncIterator[None]:
    """Run the services that a replay needs; no other services may run for its prefix.

    ``answers_from``: the prefix whose recorded answers are used before a model is asked.

    Raises
    ------
    ConfigurationError
        If other services run there.
    """
    with tempfile.TemporaryDirectory(prefix="combee-replay-") as folder:
        options = StackOptions(
            settings=settings,
            bootstrap_servers=servers,
            folder=Path(folder),
            simulated=simulated,
            sim_arguments=tuple(sim_arguments),
            roles=("publish", *(["scan"] if ask else []), "shuffle"),
            answers_from=answers_from,
        )
        async with sole_stack(settings, "combee replay", options.folder, tell=remark), stack(options):
            yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadow:
    """Copies the input of one playbook into another log and waits for the results."""

    source: Log
    target: Log
    name: str
    timeout_s: float

    async def copy(self, ids: Mapping[int, str], what: str) -> dict[str, int]:
        """Write the reflections at these offsets under these ids; return their new offsets by id.

        Raises
        ------
        FatalError
            If some have expired.
        """
        records = [record async for record in records_at(self.source, self.name, sorted(ids))]
        if missing := len(ids) - len(records):
            raise FatalError(f"{missing} reflections of {what} have expired: it cannot be replayed")
        copies = [again(record, ids[record.offset]) for record in records]
        offsets = await self.target.produce(*copies) if copies else ()
        return {ids[record.offset]: offset for record, offset in zip(records, offsets, strict=True)}

    async def next(
        self, topic: Topic[M], since: Mapping[int, int], is_wanted: Callable[[M], Awaitable[bool]]
    ) -> tuple[int, M]:
        """Return the first matching message of the playbook, with its offset.

        Raises
        ------
        StalledError
            If none comes in time.
        """
        try:
            async with (
                asyncio.timeout(self.timeout_s),
                aclosing(self.target.follow(topic.name, since)) as changes,
            ):
                async for records in changes:
                    for record in records or ():
                        for message in topic.under(self.name, [record]):
                            if await is_wanted(message):
                                return record.offset, message
        except TimeoutError as error:
            complaint = f"nothing came to {topic.name} of the replay within {self.timeout_s:g} s"
            raise StalledError(f"{complaint}; --timeout waits longer") from error
        raise AssertionError("a log is followed for ever")
