"""Surroundings of a ``combee learn`` run: log, services, model, and progress for people."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBars

from combee.adapters.clock import SystemClock
from combee.adapters.kafka import KafkaAdmin
from combee.adapters.ports import CombeeError, FatalError, Log, TransientError
from combee.assembly.backends import connection, language_model
from combee.assembly.local.deployment import complaints
from combee.assembly.local.preflight import check, require_model
from combee.assembly.local.stack import StackOptions, model_environment, stack
from combee.assembly.local.stack_file import sole_stack
from combee.cli.learn.learning import Learning
from combee.cli.shared.console import remark
from combee.cli.shared.log import open_log
from combee.core.formats.intake import Item, Sample
from combee.core.log.diagnosis import flow
from combee.core.methods.method import Method
from combee.core.playbook.versions import misfit
from combee.log.history import newest_playbook
from combee.log.inspection.learned import Progress
from combee.process.settings.loading import Settings
from combee.process.settings.methods import configured_method
from combee_schemas.playbook import Playbook

SERVICES = ("reflect", "shuffle", "scan", "publish")
POLL_S = 0.5
QUIET_S = 2.0
"""Seconds without progress before a run prints what it waits for."""
COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnOptions:
    """Where services come from, and how long to wait."""

    settings: Settings
    simulated: bool
    sim_arguments: tuple[str, ...]
    ours: bool
    """Whether this run starts the services."""
    workers: Mapping[str, str]
    """Health addresses of the workers of 'combee up', by name."""
    stall_s: float


async def learn_items(
    options: LearnOptions, items: Sequence[Item], playbook: str, err: Console
) -> tuple[dict[str, object], Playbook]:
    """Learn from items and return the report with the playbook."""
    settings = options.settings
    method = configured_method(settings.batch)
    asks = any(isinstance(item, Sample) for item in items)
    if signer := settings.sources.signer():
        items = [item if isinstance(item, Sample) else signer.declared(item) for item in items]
    ours = options.ours
    if ours:
        await check(settings, simulated=options.simulated)
    elif asks:
        require_model(settings.model)
    concurrency = settings.model.llm_concurrency
    async with open_log(settings, create=ours) as (log, bootstrap):
        known = await Learning(log, None, SystemClock(), concurrency=concurrency, signer=signer).known(
            items, playbook
        )
        if known is not None:
            return known.as_json(), known.playbook
        if ours:
            await _require_fit(settings, log, playbook, method)
        else:
            await _require_services(settings, bootstrap)
        async with _workers(options, bootstrap) as (where, workers):
            chosen_model = settings.model.model_copy(update=where)
            model = language_model(chosen_model) if asks else None
            admin = KafkaAdmin(connection(settings, bootstrap))
            whom = f"its model {chosen_model.model or ''}".rstrip()
            learning = Learning(
                log,
                model,
                SystemClock(),
                concurrency=concurrency,
                spending=settings.spend.caps(),
                method=method,
                signer=signer,
            )
            with ProgressBars(*COLUMNS, console=err, transient=True) as progress:
                bars = _Bars(progress)

                async def look() -> str:
                    if bars.moved is None and model is not None:
                        return f"waiting for answers to the samples: {model.trouble or chosen_model.model}"
                    return await _waited_for(admin, whom, bars.moved, workers)

                watching = asyncio.create_task(_show_waits(bars, look))
                try:
                    report = await learning.run(
                        items, playbook, stall_s=options.stall_s, on_progress=bars.show
                    )
                finally:
                    watching.cancel()
                    await asyncio.gather(watching, return_exceptions=True)
            if model is not None:
                await model.close()
    return report.as_json(), report.playbook


async def _require_fit(settings: Settings, log: Log, playbook: str, method: Method) -> None:
    """Refuse a method that does not fit the existing playbook, which the services would make wait for ever."""
    current = await newest_playbook(log, playbook)
    why = current and misfit(current, method.HOLDS, settings.batch.method)
    if why:
        raise FatalError(why)


async def _require_services(settings: Settings, bootstrap: str) -> None:
    """Refuse to wait if no service runs at all; a single missing service may come back."""
    admin = KafkaAdmin(connection(settings, bootstrap))
    for group in SERVICES:
        if await admin.members(group):
            return
    raise FatalError(
        f"none of {', '.join(SERVICES)} runs on {bootstrap}: start 'combee up' or 'combee worker ROLE' there,"
        " or add --start-workers to start them for this run"
    )


@asynccontextmanager
async def _workers(
    options: LearnOptions, bootstrap: str
) -> AsyncIterator[tuple[Mapping[str, str], Mapping[str, str]]]:
    """Run the services if this run starts them; yield the stand-in's address, if it was started, and the workers'."""
    if not options.ours:
        yield {}, options.workers
        return
    settings = options.settings
    if settings.worker.metrics_port is None:
        settings = replace(settings, worker=settings.worker.model_copy(update={"metrics_port": 0}))
    with tempfile.TemporaryDirectory(prefix="combee-learn-") as folder:
        stack_options = StackOptions(
            settings=settings,
            bootstrap_servers=bootstrap,
            folder=Path(folder),
            simulated=options.simulated,
            sim_arguments=options.sim_arguments,
        )
        async with (
            sole_stack(options.settings, "combee learn", Path(folder), wait_s=options.stall_s, tell=remark),
            stack(stack_options) as supervisor,
        ):
            yield (model_environment(supervisor) if options.simulated else {}), supervisor.addresses()


# ---- progress for people


class _Bars:
    """Progress bars of a run, and the time of its last progress."""

    def __init__(self, progress: ProgressBars) -> None:
        self.console = progress.console
        self.moved: Progress | None = None
        self.moved_at = time.monotonic()
        self._progress = progress
        self._bars = {stage: progress.add_task(stage, total=None) for stage in flow.STAGES}

    def show(self, moved: Progress) -> None:
        """Show the present progress."""
        if moved == self.moved:
            return
        self.moved, self.moved_at = moved, time.monotonic()
        for stage, bar in self._bars.items():
            self._progress.update(bar, total=moved.total, completed=getattr(moved, stage))


async def _show_waits(bars: "_Bars", look: Callable[[], Awaitable[str]]) -> None:
    """Print what the run waits for when there is no progress for a while; the same text only once."""
    printed = ""
    while True:
        await asyncio.sleep(POLL_S)
        if time.monotonic() - bars.moved_at < QUIET_S:
            continue
        text = await look()
        if text != printed:
            bars.console.print(text, markup=False, soft_wrap=True)
            printed = text


async def _waited_for(
    admin: KafkaAdmin, model: str, moved: Progress | None, workers: Mapping[str, str]
) -> str:
    if moved is None:
        return "waiting for the broker to answer"
    asked = asyncio.create_task(complaints(workers))  # concurrently, to answer within five seconds
    try:
        async with asyncio.timeout(QUIET_S):
            members = {role: await admin.members(role) for role in SERVICES}
    except (TransientError, TimeoutError):
        return "waiting for the broker, which does not answer"
    except CombeeError as error:
        return f"waiting; the running services cannot be looked up: {error}"
    said = {name: (*health.red, *health.waits) for name, health in (await asked).items()}
    return flow.waited_for(moved.left, members, said, model)
