"""``combee demo``: learning end to end, with simulated agents and model on real Kafka and Combee."""

import asyncio
import signal
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from combee.adapters.clock import SystemClock
from combee.adapters.kafka import KafkaLog
from combee.adapters.ports import LanguageModel
from combee.assembly import backends, compose
from combee.assembly.local.preflight import require_extras
from combee.assembly.local.stack import StackOptions, model_environment, stack
from combee.cli.broker import throw_away_broker
from combee.cli.demo.report import DemoResult, batch_line, report
from combee.cli.learn.learning import Learning
from combee.core.methods.method import Method
from combee.core.names.identity import reflection_id
from combee.log.inspection.audit import audit
from combee.log.inspection.learned import Progress
from combee.log.inspection.tracker import Tracker
from combee.process.settings.loading import Settings, load_settings
from combee.process.settings.methods import configured_method
from combee_schemas.topics import outgoing
from combee_schemas.trace import Trace
from combee_sim.family.desk import Ticket, one_each, tickets
from combee_sim.fleet import Accuracy, measure, run_fleet

PLAYBOOK = "demo/desk"
STALL_S = 60.0
LATENCY = "0.25"
COLUMNS = (TextColumn("{task.description:>34}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())


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
    questions: Annotated[int, typer.Option(min=20, help="questions the simulated agents work on")] = 640,
    agents: Annotated[int, typer.Option(min=1, help="simulated agents at once")] = 24,
    batch_size: Annotated[int, typer.Option(min=1, help="original reflections per batch")] = 40,
    seed: Annotated[int, typer.Option(help="same seed, same questions")] = 1,
    latency: Annotated[
        str, typer.Option(help="latency of the simulated model: seconds, or lognormal:MEDIAN,SIGMA")
    ] = LATENCY,
) -> None:
    """Run it all once, temporary and simulated.

    A temporary Kafka, all services and simulated agents: how they learn, and that nothing was lost.
    """
    require_extras("embedded", "sim")
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
        clean = asyncio.run(run_demo(options, Console()))
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
            f"Kafka at {bootstrap}, {len(compose.ROLES)} services and a [b]simulated[/b] model,"
            f" up in {clock.monotonic() - began:.1f} s"
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
    async with Tracker(log, PLAYBOOK, clock).running() as tracker:
        with Bars(*COLUMNS, console=console, transient=True) as bars:
            before = await _measured(model, method, tracker, held_out, bars, "simulated accuracy before")
            began = clock.monotonic()
            watching = asyncio.create_task(_announce(tracker, console))
            fleet_bar = bars.add_task(f"{options.agents} simulated agents", total=len(asked))

            async def publish(trace: Trace) -> None:
                traces[reflection_id(trace.playbook, trace.trace_id)] = trace
                await log.produce(outgoing(trace))

            await run_fleet(
                model,
                asked,
                name=PLAYBOOK,
                playbook=lambda: tracker.newest,
                publish=publish,
                agents=options.agents,
                seed=options.seed,
                method=method,
                on_progress=lambda moved: bars.update(fleet_bar, completed=moved.asked),
            )
            applied_bar = bars.add_task("reflections applied", total=len(asked))

            def show(moved: Progress) -> None:
                bars.update(applied_bar, completed=moved.applied)

            await learning.settle(tracker, traces, stall_s=STALL_S, on_progress=show)
            seconds = clock.monotonic() - began
            await _finish(watching)
            after = await _measured(model, method, tracker, held_out, bars, "simulated accuracy after")
        return DemoResult(
            learned=learning.report(tracker, traces),
            versions=tuple(tracker.versions[n] for n in sorted(tracker.versions)),
            before=before,
            after=after,
            seconds=seconds,
        )


async def _measured(
    model: LanguageModel,
    method: Method,
    tracker: Tracker,
    questions: Sequence[Ticket],
    bars: Bars,
    what: str,
) -> Accuracy:
    bar = bars.add_task(what, total=None)
    accuracy = await measure(model, tracker.newest, questions, method=method)
    bars.remove_task(bar)
    return accuracy


async def _announce(tracker: Tracker, console: Console) -> None:
    """Print each batch as its version appears."""
    shown = 0
    while True:
        for sequence in sorted(s for s in tracker.versions if s > shown):
            console.print(batch_line(tracker.versions[sequence], tracker.batches.get(sequence)))
            shown = sequence
        await tracker.change()


async def _finish(watching: "asyncio.Task[None]") -> None:
    """Let the announcer print its remaining lines, then end it."""
    await asyncio.sleep(0)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
