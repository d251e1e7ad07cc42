"""``combee learn FILE``: lines in, playbook out."""

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from combee.cli.console import remark
from combee.cli.files import save, written
from combee.cli.lookup import newest_playbook
from combee.cli.options import as_format, checked_form
from combee.core.components import misfit
from combee.core.formats import Format, natural_form
from combee.core.intake import Item, Sample, Unknown, ignored_told
from combee.core.method import Method
from combee.ports import FatalError, Log
from combee.runtime.settings import Settings, load_settings
from combee_schemas.playbook import Playbook

REJECTED = 3
COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnOptions:
    """Where services come from and how patient to be."""

    settings: Settings
    simulated: bool
    sim_arguments: tuple[str, ...]
    start_workers: bool
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
    playbook: Annotated[str, typer.Option(help="name of the playbook")] = "default",
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
    settings = load_settings(
        model="simulated" if simulated else model,
        base_url=base_url,
        batch_size=batch_size,
        copies=copies,
        method=method,
        bootstrap_servers=bootstrap_servers,
    )
    options = LearnOptions(
        settings=settings,
        simulated=simulated,
        sim_arguments=tuple(f"--{one}" for one in sim_option or ()),
        start_workers=start_workers,
        stall_s=stall_timeout,
    )
    from combee.cli.learning import read_items  # noqa: PLC0415 - --help stays quick

    err = Console(stderr=True)
    name = file if file != "-" else "standard input"
    ignored: dict[str, Unknown] = {}
    items, rejected = read_items(
        _lines(file), playbook, lambda line, why: err.print(f"{name}:{line}: {why}", markup=False), ignored
    )
    if ignored:
        remark(f"{name}: {ignored_told(ignored)}")
    report, learned = asyncio.run(_learn(options, items, playbook, err))
    _print(
        report | {"reflections": {**_counts(report), "rejected": rejected}},
        learned,
        as_format(form) if form else natural_form(learned),
        out,
        as_json=as_json,
    )
    if _counts(report)["dead_lettered"]:
        err.print("some items could not be learned from: see 'combee dlq list'")
        raise typer.Exit(1)
    if rejected:
        err.print(f"{rejected} lines were rejected")
        raise typer.Exit(REJECTED)


def _counts(report: dict[str, object]) -> dict[str, int]:
    counts = report["reflections"]
    return dict(counts) if isinstance(counts, dict) else {}


def _lines(file: str) -> list[str]:
    if file == "-":
        return sys.stdin.read().splitlines()
    try:
        return Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FatalError(f"cannot read {file}: {error}") from error


async def _learn(
    options: LearnOptions, items: Sequence[Item], playbook: str, err: Console
) -> tuple[dict[str, object], Playbook]:
    from combee.cli.learning import Learning  # noqa: PLC0415
    from combee.cli.log import open_log  # noqa: PLC0415
    from combee.cli.stack import stack_is_running  # noqa: PLC0415
    from combee.compose import NO_MODEL, language_model  # noqa: PLC0415
    from combee.runtime.clock import SystemClock  # noqa: PLC0415
    from combee.runtime.methods import chosen  # noqa: PLC0415

    settings = options.settings
    method = chosen(settings.batch)
    asks = any(isinstance(item, Sample) for item in items)
    ours = options.start_workers or (
        settings.kafka.bootstrap_servers is None and not stack_is_running(settings)
    )
    if (ours or asks) and settings.model.model is None:
        raise FatalError(NO_MODEL)
    concurrency = settings.model.llm_concurrency
    async with open_log(settings, create=ours) as (log, bootstrap):
        known = await Learning(log, None, SystemClock(), concurrency=concurrency).known(items, playbook)
        if known is not None:
            return known.as_json(), known.playbook
        if ours:
            await _require_fit(settings, log, playbook, method)
        else:
            await _require_services(settings, bootstrap)
        async with _workers(options, bootstrap, ours=ours) as where:
            model = language_model(settings.model.model_copy(update=where)) if asks else None
            learning = Learning(
                log,
                model,
                SystemClock(),
                concurrency=concurrency,
                spending=settings.spend.caps(),
                method=method,
            )
            with Progress(*COLUMNS, console=err, transient=True) as progress:
                show = _bars(progress)
                report = await learning.run(items, playbook, stall_s=options.stall_s, on_progress=show)
            if model is not None:
                await model.close()
    return report.as_json(), report.playbook


async def _require_fit(settings: Settings, log: Log, playbook: str, method: Method) -> None:
    """Refuse a method that would destroy the playbook there is; the services would let it wait for ever."""
    current = await newest_playbook(log, playbook)
    why = current and misfit(current, method.HOLDS, settings.batch.method)
    if why:
        raise FatalError(why)


async def _require_services(settings: Settings, bootstrap: str) -> None:
    """Refuse to wait for services that are not there."""
    from combee.adapters.kafka import KafkaAdmin  # noqa: PLC0415
    from combee.compose import connection  # noqa: PLC0415

    admin = KafkaAdmin(connection(settings, bootstrap))
    absent = [group for group in ("shuffle", "scan", "publish") if not await admin.members(group)]
    if absent:
        raise FatalError(
            f"nobody runs {', '.join(absent)} on {bootstrap}: start 'combee up' or 'combee worker ROLE' there,"
            " or add --start-workers to start them for this run"
        )


def _bars(progress: Progress) -> Callable[[Any], None]:
    bars = {stage: progress.add_task(stage, total=None) for stage in ("reflected", "batched", "applied")}

    def show(moved: Any) -> None:
        for stage, bar in bars.items():
            progress.update(bar, total=moved.total, completed=getattr(moved, stage))

    return show


@asynccontextmanager
async def _workers(options: LearnOptions, bootstrap: str, *, ours: bool) -> AsyncIterator[dict[str, str]]:
    """Run the services for the occasion if they are ours to run; yield where the model is, if simulated."""
    from combee.cli.stack import StackOptions, model_environment, stack  # noqa: PLC0415

    if not ours:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="combee-learn-") as folder:
        stack_options = StackOptions(
            settings=options.settings,
            bootstrap_servers=bootstrap,
            folder=Path(folder),
            simulated=options.simulated,
            sim_arguments=options.sim_arguments,
        )
        async with stack(stack_options) as supervisor:
            yield model_environment(supervisor) if options.simulated else {}


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
    Console(stderr=True).print(_summary(report))


def _summary(report: dict[str, object]) -> str:
    counts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in _counts(report).items())
    return (
        f"{report['playbook']} version {report['version']}: {report['entries']} entries; reflections: {counts};"
        f" {report['batches']} batches, {report['model_calls']} model calls, {report['seconds']} s"
    )
