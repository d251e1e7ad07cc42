"""``combee demo``: learning end to end, with simulated agents and model on real Kafka and Combee."""

import asyncio
import logging
import signal
import tempfile
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Annotated, Self

import typer
from rich.console import Console
from rich.live import Live

from combee.adapters.clock import SystemClock
from combee.adapters.kafka import KafkaLog
from combee.adapters.ports import LanguageModel
from combee.assembly import backends, compose
from combee.assembly.local.preflight import require_extras
from combee.assembly.local.stack import StackOptions, model_environment, stack
from combee.cli.broker import throw_away_broker
from combee.cli.demo.report import DemoResult, added_by, live_view, plain_rows, report, three
from combee.cli.learn.learning import Learning
from combee.core.evaluation.outcomes.report import Curve, curve_of
from combee.core.names.identity import reflection_id
from combee.log.inspection.audit import audit
from combee.log.inspection.learned import Progress
from combee.log.inspection.lineage import lineage
from combee.log.inspection.tracker import Tracker
from combee.process.settings.loading import Settings, load_settings
from combee.process.settings.methods import configured_method
from combee.process.telemetry.logs import configure_logs
from combee_schemas.base import Shown
from combee_schemas.outcome import OutcomeStatistics, VersionOutcomes
from combee_schemas.topics import OUTCOME_STATISTICS, outgoing
from combee_schemas.trace import Trace
from combee_sim.family.desk import one_each, tickets
from combee_sim.family.family import right
from combee_sim.fleet import Progress as FleetProgress
from combee_sim.fleet import measure, run_fleet

PLAYBOOK = "demo/desk"
STALL_S = 60.0
LATENCY = "0.25"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Options of the demo."""

    settings: Settings
    questions: int
    agents: int
    seed: int
    latency: str


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee demo --questions 400 --agents 30")(demo)


def demo(
    *,
    questions: Annotated[int, typer.Option(min=20, help="tickets that the simulated agents answer")] = 240,
    agents: Annotated[
        int, typer.Option(min=1, help="number of simulated agents that run at the same time")
    ] = 8,
    batch_size: Annotated[int, typer.Option(min=1, help="original reflections per batch")] = 12,
    seed: Annotated[int, typer.Option(help="same seed, same questions")] = 1,
    latency: Annotated[
        str, typer.Option(help="latency of the simulated model: seconds, or lognormal:MEDIAN,SIGMA")
    ] = LATENCY,
) -> None:
    """Watch simulated agents learn, on a temporary Kafka.

    The agents of a service desk learn its house rules: success by version, the runs that taught three lessons, the
    cost, and that nothing was lost.
    """
    require_extras("embedded", "sim")
    # A retried call is no news in a demo; errors of services are in their log.
    configure_logs("error", json=False, libraries=logging.CRITICAL)
    options = DemoOptions(
        settings=load_settings(
            model="simulated", batch_size=batch_size, llm_concurrency=32, topic_prefix="demo"
        ),
        questions=questions,
        agents=agents,
        seed=seed,
        latency=latency,
    )
    try:
        clean = asyncio.run(run_demo(options, Console(highlight=False)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        typer.echo("stopped", err=True)
        raise typer.Exit(130) from None
    if not clean:
        raise typer.Exit(1)


async def run_demo(options: DemoOptions, console: Console) -> bool:
    """Run the demo; return whether the ledger is clean. Ctrl-C stops everything in order."""
    task = asyncio.ensure_future(_run(options, console))
    for sign in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sign, task.cancel)
    return await task


async def _run(options: DemoOptions, console: Console) -> bool:
    clock = SystemClock()
    async with AsyncExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="combee-demo-")))
        began = clock.monotonic()
        with console.status("starting Apache Kafka on loopback"):
            bootstrap = await opened.enter_async_context(throw_away_broker(folder / "kafka"))
        connected = backends.connection(options.settings, bootstrap)
        with console.status("creating topics and starting the services"):
            await backends.create_topics(options.settings, connected)
            stack_options = StackOptions(
                settings=options.settings,
                bootstrap_servers=bootstrap,
                folder=folder / "stack",
                simulated=True,
                sim_arguments=("--latency", options.latency, "--seed", str(options.seed)),
            )
            supervisor = await opened.enter_async_context(stack(stack_options))
        console.print(
            f"Kafka, {len(compose.ROLES)} services and a [b]simulated[/b] model are up after"
            f" {clock.monotonic() - began:.0f} s. {options.agents} agents answer {options.questions} tickets of a"
            " service desk whose rules they do not know.\n"
        )
        log = KafkaLog(connected)
        opened.push_async_callback(log.close)
        where = model_environment(supervisor)
        model = backends.language_model(options.settings.model.model_copy(update=where))
        opened.push_async_callback(model.close)
        result = await _learn(options, log, model, console)
        with console.status("checking the ledger"):
            ledger = await audit(log)
    report(result, ledger, console)
    return ledger.good


async def _learn(options: DemoOptions, log: KafkaLog, model: LanguageModel, console: Console) -> DemoResult:
    clock = SystemClock()
    rng = Random(options.seed)  # noqa: S311 - reproducible, not secret
    drawn = tickets(rng)
    asked = [next(drawn) for _ in range(options.questions)]
    held_out = one_each(rng)
    method = configured_method(options.settings.batch)
    learning = Learning(log, model, clock, concurrency=options.agents, method=method)
    traces: dict[str, Trace] = {}
    async with Tracker(log, PLAYBOOK, clock).running() as tracker, _Watcher(log, tracker, console) as watcher:
        watcher.tell("the exam before")
        before = await measure(model, tracker.newest, held_out, method=method)
        began = clock.monotonic()

        async def publish(trace: Trace) -> None:
            traces[reflection_id(trace.playbook, trace.trace_id)] = trace
            told = {
                "success": right(trace.answer, trace.target or ""),
                "shown": trace.shown or Shown(version=0),
            }
            await log.produce(outgoing(trace.model_copy(update=told)))

        def answered(moved: FleetProgress) -> None:
            watcher.tell(f"{moved.asked} of {len(asked)} tickets answered")

        def applied(moved: Progress) -> None:
            watcher.tell(
                f"{len(asked)} tickets answered, {moved.applied} of {moved.total} reflections in the playbook"
            )

        await run_fleet(
            model,
            asked,
            name=PLAYBOOK,
            playbook=lambda: tracker.newest,
            publish=publish,
            agents=options.agents,
            seed=options.seed,
            method=method,
            on_progress=answered,
        )
        await learning.settle(tracker, traces, stall_s=STALL_S, on_progress=applied)
        seconds = clock.monotonic() - began
        watcher.tell("the exam after")
        after = await measure(model, tracker.newest, held_out, method=method)
        learned = learning.report(tracker, traces)
        lessons = [
            await lineage(log, PLAYBOOK, entry_id, traces=True, on_progress=lambda *_: None)
            for entry_id in three(learned.playbook)
        ]
        await watcher.wait(options.questions)
        return DemoResult(
            learned=learned,
            curve=watcher.curve,
            added=watcher.added,
            lessons=tuple(lessons),
            before=before,
            after=after,
            seconds=seconds,
        )


class _Watcher:
    """Success by version, as Combee's own statistics tell it: a live view on a terminal, else a line per point."""

    def __init__(self, log: KafkaLog, tracker: Tracker, console: Console) -> None:
        self._log = log
        self._tracker = tracker
        self._console = console
        self._status = ""
        self._statistics: OutcomeStatistics | None = None
        self._printed = 0
        self._moved = asyncio.Event()
        self._live = Live(
            get_renderable=lambda: live_view(self.curve, self.added, self._status),
            console=console,
            transient=True,
            refresh_per_second=8,
        )
        self._following: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._following = asyncio.create_task(self._follow())
        if self._console.is_terminal:
            self._live.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._live.stop()
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    @property
    def curve(self) -> Curve:
        """Success by version so far."""
        return curve_of(self._statistics)

    @property
    def added(self) -> dict[int, int]:
        """The number of lessons that each version added."""
        return added_by(self._tracker.versions.values())

    def tell(self, status: str) -> None:
        """Show another line about the progress."""
        self._status = status

    async def wait(self, runs: int) -> None:
        """Wait until the statistics count all runs."""
        async with asyncio.timeout(STALL_S):
            while sum(version.figures.runs for version in self._versions) < runs:
                self._moved.clear()
                await self._moved.wait()
        self._print(is_over=True)

    @property
    def _versions(self) -> tuple[VersionOutcomes, ...]:
        return self._statistics.versions if self._statistics else ()

    async def _follow(self) -> None:
        async with aclosing(self._log.follow(OUTCOME_STATISTICS.name)) as changes:
            async for records in changes:
                for record in records or ():
                    self._statistics = OUTCOME_STATISTICS.read_or_none(record) or self._statistics
                self._print(is_over=False)
                self._moved.set()

    def _print(self, *, is_over: bool) -> None:
        if self._console.is_terminal:
            return
        rows = plain_rows(self.curve, self.added, is_over=is_over)
        for row in rows[self._printed :]:
            self._console.print(row, soft_wrap=True)
        self._printed = max(self._printed, len(rows))
