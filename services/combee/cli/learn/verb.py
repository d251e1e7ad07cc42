"""``combee learn FILE``: lines in, playbook out."""

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from combee.cli.console import clean, remark
from combee.cli.errors import REJECTED, USAGE, told
from combee.cli.options import as_format, checked_form, checked_name
from combee.cli.playbook.files import read_text, save, written
from combee.cli.playbook.lookup import newest_playbook
from combee.core.diagnosis import flow
from combee.core.formats.files import Format, natural_form
from combee.core.formats.intake import Item, Sample, Unknown, ignored_told
from combee.core.methods.method import Method
from combee.core.playbook import retention
from combee.core.playbook.components import misfit
from combee.local.preflight import check, model_flag, require_model, stands_in
from combee.ports import CombeeError, ConfigurationError, FatalError, Log, TransientError
from combee.settings.loading import Settings, load_settings
from combee_schemas.playbook import Playbook

if TYPE_CHECKING:
    from combee.adapters.kafka import KafkaAdmin
    from combee.cli.learn.learning import Progress as Moved

SERVICES = ("reflect", "shuffle", "scan", "publish")
NAMED = 3
LOOK_S = 0.5
QUIET_S = 2.0
"""Nothing has moved for so long: a run says what it waits for."""
COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnOptions:
    """Where services come from and how patient to be."""

    settings: Settings
    simulated: bool
    sim_arguments: tuple[str, ...]
    ours: bool
    """Whether this run starts the services."""
    workers: Mapping[str, str]
    """Where the workers of 'combee up' tell of themselves, by name."""
    stall_s: float


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        epilog="Example: combee learn runs.jsonl --playbook support/refunds --model openai/gpt-4.1-mini"
    )(learn)


def learn(
    file: Annotated[
        str, typer.Argument(help="JSON lines: traces, ACE samples or reflections; - reads stdin")
    ],
    *,
    playbook: Annotated[str, typer.Option(help="name of the playbook", callback=checked_name)] = "default",
    model: Annotated[str | None, typer.Option(help="such as openai/gpt-4.1-mini or ollama/llama3")] = None,
    base_url: Annotated[str | None, typer.Option(help="any OpenAI-compatible server")] = None,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="use the stand-in model (a simulation)")
    ] = False,
    batch_size: Annotated[int | None, typer.Option(help="original reflections per batch")] = None,
    copies: Annotated[int | None, typer.Option(help="copies of each reflection (p)")] = None,
    method: Annotated[str | None, typer.Option(help="how to learn: ace, gepa or one installed")] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", help="of the playbook: ace, gepa, json, kayba, md or skill", callback=checked_form
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="write the playbook here")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the report as JSON")] = False,
    bootstrap_servers: Annotated[str | None, typer.Option(help="Kafka brokers")] = None,
    start_workers: Annotated[
        bool, typer.Option("--start-workers", help="start the services even if brokers are configured")
    ] = False,
    stall_timeout: Annotated[
        float, typer.Option(help="give up when nothing moves for this long (s)")
    ] = 600.0,
    sim_option: Annotated[
        list[str] | None, typer.Option(help="with --simulated: an option of 'sim serve', such as latency=1")
    ] = None,
) -> None:
    """Learn from a file: publish what is new, wait until all of it is applied, print the playbook."""
    flag = model_flag(simulated=simulated, model=model, base_url=base_url)
    settings = load_settings(
        model=flag,
        base_url=base_url,
        batch_size=batch_size,
        copies=copies,
        method=method,
        bootstrap_servers=bootstrap_servers,
    )
    from combee.local.deployment import beside, deployment  # noqa: PLC0415 - --help stays quick

    running = deployment(settings)
    settings = beside(
        running,
        settings,
        model=flag,
        base_url=base_url,
        batch_size=batch_size,
        copies=copies,
        method=method,
    )
    ours = start_workers or (running is None and settings.kafka.bootstrap_servers is None)
    theirs = {"--simulated": simulated, "--batch-size": batch_size, "--copies": copies}
    if running is None and not ours and any(theirs.values()):
        flags = ", ".join(name for name, given in theirs.items() if given)
        raise ConfigurationError(
            f"the services on {settings.kafka.bootstrap_servers} have a model and batches of their own: leave {flags}"
            " out, or add --start-workers to start services for this run"
        )
    if sim_option and not (ours and stands_in(settings.model, simulated=simulated)):
        raise ConfigurationError("--sim-option is for a stand-in that this run starts, and it starts none")
    options = LearnOptions(
        settings=settings,
        simulated=ours and running is None and stands_in(settings.model, simulated=simulated),
        sim_arguments=tuple(f"--{one}" for one in sim_option or ()),
        ours=ours,
        workers=running.workers if running else {},
        stall_s=stall_timeout,
    )
    from combee.cli.learn.learning import read_items  # noqa: PLC0415 - --help stays quick

    err = Console(stderr=True)
    name = file if file != "-" else "standard input"
    ignored: dict[str, Unknown] = {}
    lines = read_text(file).splitlines()
    items, rejected = read_items(
        lines, playbook, lambda line, why: err.print(f"{name}:{line}: {why}", markup=False), ignored
    )
    if ignored:
        remark(f"{name}: {ignored_told(ignored)}")
    if not items:
        why = f"all {rejected} lines of {name} were rejected" if rejected else f"{name} is empty"
        raise told(f"{why}: nothing to learn", REJECTED if rejected else USAGE)
    report, learned = asyncio.run(_learn(options, items, playbook, err))
    _print(
        report | {"reflections": {**_counts(report), "rejected": rejected}},
        learned,
        as_format(form) if form else natural_form(learned),
        out,
        as_json=as_json,
    )
    conflicts = report["conflicts"]
    for one in conflicts if isinstance(conflicts, list) else ():
        err.print(
            f"conflict: {playbook} has other content under the id {clean(one)}; nothing was learned from this one:"
            " send it under an id of its own",
            markup=False,
            soft_wrap=True,
        )
    if _counts(report)["dead_lettered"]:
        err.print("some items could not be learned from: see 'combee dlq list'")
        raise typer.Exit(1)
    if rejected:
        err.print(f"{rejected} lines were rejected")
    if rejected or conflicts:
        raise typer.Exit(REJECTED)


def _counts(report: dict[str, object]) -> dict[str, int]:
    counts = report["reflections"]
    return dict(counts) if isinstance(counts, dict) else {}


async def _learn(
    options: LearnOptions, items: Sequence[Item], playbook: str, err: Console
) -> tuple[dict[str, object], Playbook]:
    from combee.adapters.kafka import KafkaAdmin  # noqa: PLC0415
    from combee.backends import connection, language_model  # noqa: PLC0415
    from combee.cli.learn.learning import Learning  # noqa: PLC0415
    from combee.cli.log import open_log  # noqa: PLC0415
    from combee.clock import SystemClock  # noqa: PLC0415
    from combee.settings.methods import configured_method  # noqa: PLC0415

    settings = options.settings
    method = configured_method(settings.batch)
    asks = any(isinstance(item, Sample) for item in items)
    ours = options.ours
    if ours:
        await check(settings, simulated=options.simulated)
    elif asks:
        require_model(settings.model)
    concurrency = settings.model.llm_concurrency
    async with open_log(settings, create=ours) as (log, bootstrap):
        known = await Learning(log, None, SystemClock(), concurrency=concurrency).known(items, playbook)
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
            )
            with Progress(*COLUMNS, console=err, transient=True) as progress:
                bars = _Bars(progress)

                async def look() -> str:
                    if bars.moved is None and model is not None:
                        return f"waiting for answers to the samples: {model.trouble or chosen_model.model}"
                    return await _waited_for(admin, whom, bars.moved, workers)

                watching = asyncio.create_task(_tell_waits(bars, look))
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


async def _tell_waits(bars: "_Bars", look: Callable[[], Awaitable[str]]) -> None:
    """Say what the run waits for, whenever nothing has moved for a while; the same only once."""
    said = ""
    while True:
        await asyncio.sleep(LOOK_S)
        if time.monotonic() - bars.moved_at < QUIET_S:
            continue
        text = await look()
        if text != said:
            bars.console.print(text, markup=False, soft_wrap=True)
            said = text


async def _waited_for(
    admin: "KafkaAdmin", model: str, moved: "Moved | None", workers: Mapping[str, str]
) -> str:
    from combee.local.deployment import complaints  # noqa: PLC0415

    if moved is None:
        return "waiting for the broker to answer"
    asked = asyncio.create_task(complaints(workers))  # meanwhile: who waits is told within five seconds
    try:
        async with asyncio.timeout(QUIET_S):
            members = {role: await admin.members(role) for role in SERVICES}
    except (TransientError, TimeoutError):
        return "waiting for the broker, which does not answer"
    except CombeeError as error:
        return f"waiting, and who works cannot be looked up: {error}"
    said = {name: (*one.red, *one.waits) for name, one in (await asked).items()}
    return flow.waited_for(moved.left, members, said, model)


async def _require_fit(settings: Settings, log: Log, playbook: str, method: Method) -> None:
    """Refuse a method that would destroy the playbook there is; the services would let it wait for ever."""
    current = await newest_playbook(log, playbook)
    why = current and misfit(current, method.HOLDS, settings.batch.method)
    if why:
        raise FatalError(why)


async def _require_services(settings: Settings, bootstrap: str) -> None:
    """Refuse to wait where no service runs at all; one that is away may come back."""
    from combee.adapters.kafka import KafkaAdmin  # noqa: PLC0415
    from combee.backends import connection  # noqa: PLC0415

    admin = KafkaAdmin(connection(settings, bootstrap))
    for group in SERVICES:
        if await admin.members(group):
            return
    raise FatalError(
        f"nobody runs {', '.join(SERVICES)} on {bootstrap}: start 'combee up' or 'combee worker ROLE' there,"
        " or add --start-workers to start them for this run"
    )


class _Bars:
    """How far a run is, and when it last moved."""

    def __init__(self, progress: Progress) -> None:
        self.console = progress.console
        self.moved: Moved | None = None
        self.moved_at = time.monotonic()
        self._progress = progress
        self._bars = {stage: progress.add_task(stage, total=None) for stage in flow.STAGES}

    def show(self, moved: "Moved") -> None:
        """Show how far it is now."""
        if moved == self.moved:
            return
        self.moved, self.moved_at = moved, time.monotonic()
        for stage, bar in self._bars.items():
            self._progress.update(bar, total=moved.total, completed=getattr(moved, stage))


@asynccontextmanager
async def _workers(
    options: LearnOptions, bootstrap: str
) -> AsyncIterator[tuple[Mapping[str, str], Mapping[str, str]]]:
    """Run the services if they are ours to run; yield where the stand-in is, if one was started, and the workers."""
    from combee.local.stack import StackOptions, model_environment, stack  # noqa: PLC0415
    from combee.local.stack_file import sole_stack  # noqa: PLC0415

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


def _print(
    report: dict[str, object], playbook: Playbook, form: Format, out: Path | None, *, as_json: bool
) -> None:
    text = written(playbook, form)
    if out is not None:
        save(out, text)
    if as_json:
        typer.echo(json.dumps(report))
        return
    if out is None:
        typer.echo(text, nl=False)
    console = Console(stderr=True, highlight=False)
    console.print(_summary(report), soft_wrap=True)
    for line in _left_nothing(report["left_nothing"]):
        console.print(line, markup=False, soft_wrap=True)
    if warning := retention.warning(playbook.retention_recent):
        console.print(f"warning: {warning}", style="yellow", soft_wrap=True)


def _left_nothing(found: Any) -> Iterator[str]:
    """Yield which reflections left nothing in the playbook, a line per reason."""
    for why, ids in found.items():
        more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
        yield f"{len(ids)} left nothing in the playbook: {why} ({', '.join(ids[:NAMED])}{more})"


def _summary(report: dict[str, object]) -> str:
    counts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in _counts(report).items())
    return (
        f"{report['playbook']} version {report['version']}: {report['entries']} entries; reflections: {counts};"
        f" {report['batches']} batches, {report['model_calls']} model calls, {report['seconds']} s"
    )
