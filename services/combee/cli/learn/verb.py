"""``combee learn FILE``: learn a playbook from lines or a folder of runs."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from combee.adapters.ports import ConfigurationError
from combee.assembly.local.deployment import beside, deployment
from combee.assembly.local.preflight import model_flag, uses_stand_in
from combee.cli.learn.run import LearnOptions, learn_items
from combee.cli.learn.trajectories import FORMATS, read_folder
from combee.cli.playbook.files import playbook_text, read_text, save
from combee.cli.shared.console import REJECTED, USAGE, diagnostics, failure, remark
from combee.cli.shared.options import (
    BaseUrl,
    DeclaredSource,
    Model,
    Simulated,
    as_format,
    checked_form,
    checked_name,
)
from combee.cli.shared.settings import deployed_settings
from combee.core.formats.files import Format, natural_form
from combee.core.formats.intake import Item, Unknown, ignored_text, lines_of
from combee.core.formats.items import read_items
from combee.core.playbook import retention
from combee.core.playbook.shown import counts, counts_text
from combee.core.text.forms import printable
from combee_schemas.playbook import Audit, Playbook

NAMED = 3


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        epilog="Example: combee learn runs.jsonl --playbook support/refunds --model openai/gpt-4.1-mini"
    )(learn)


def learn(
    file: Annotated[
        str,
        typer.Argument(
            help="JSON lines: traces, ACE samples or reflections; - reads stdin; with --from a folder"
        ),
    ],
    *,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from", help=f"the other program that recorded the folder's runs: {', '.join(FORMATS)}"
        ),
    ] = None,
    trace_tokens: Annotated[
        int | None,
        typer.Option(
            min=500,
            help="with --from: longer runs are condensed, failures kept [COMBEE_REFLECT_TRACE_TOKENS]",
        ),
    ] = None,
    playbook: Annotated[str, typer.Option(help="name of the playbook", callback=checked_name)] = "default",
    source: DeclaredSource = None,
    model: Model = None,
    base_url: BaseUrl = None,
    simulated: Simulated = False,
    batch_size: Annotated[int | None, typer.Option(help="original reflections per batch")] = None,
    copies: Annotated[int | None, typer.Option(help="copies of each reflection (p)")] = None,
    method: Annotated[str | None, typer.Option(help="learning method: ace, gepa or an installed one")] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="format of the playbook: ace, gepa, json, kayba, md or skill",
            callback=checked_form,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="write the playbook here")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the report as JSON")] = False,
    bootstrap_servers: Annotated[str | None, typer.Option(help="Kafka brokers")] = None,
    start_workers: Annotated[
        bool, typer.Option("--start-workers", help="start the services even if brokers are configured")
    ] = False,
    stall_timeout: Annotated[
        float, typer.Option(help="give up after this long without progress (s)")
    ] = 600.0,
    sim_option: Annotated[
        list[str] | None, typer.Option(help="with --simulated: an option of 'sim serve', such as latency=1")
    ] = None,
) -> None:
    """Learn from a file or folder, wait, print the playbook.

    Only new runs are published; it ends when all are applied.
    """
    flag = model_flag(simulated=simulated, model=model, base_url=base_url)
    chosen: dict[str, Any] = {
        "model": flag,
        "base_url": base_url,
        "batch_size": batch_size,
        "copies": copies,
        "method": method,
    }
    settings = deployed_settings(**chosen, bootstrap_servers=bootstrap_servers, source=source)
    running = deployment(settings)
    settings = beside(running, settings, **chosen)
    ours = start_workers or (running is None and settings.kafka.bootstrap_servers is None)
    theirs = {"--simulated": simulated, "--batch-size": batch_size, "--copies": copies}
    if running is None and not ours and any(theirs.values()):
        flags = ", ".join(name for name, given in theirs.items() if given)
        raise ConfigurationError(
            f"the services on {settings.kafka.bootstrap_servers} have a model and batches of their own: leave {flags}"
            " out, or add --start-workers to start services for this run"
        )
    if sim_option and not (ours and uses_stand_in(settings.model, simulated=simulated)):
        raise ConfigurationError(
            "--sim-option applies to a stand-in that this run starts, and this run starts none"
        )
    options = LearnOptions(
        settings=settings,
        simulated=ours and running is None and uses_stand_in(settings.model, simulated=simulated),
        sim_arguments=tuple(f"--{option}" for option in sim_option or ()),
        ours=ours,
        workers=running.workers if running else {},
        stall_s=stall_timeout,
    )
    err = diagnostics()
    name, unit = ("standard input" if file == "-" else file), ("runs" if from_ else "lines")
    items: Sequence[Item]
    items, rejected = (
        read_folder(
            file, from_, playbook, trace_tokens=trace_tokens or settings.batch.reflect_trace_tokens, err=err
        )
        if from_
        else _read_lines(file, name, playbook, err)
    )
    if not items:
        empty = "has no runs in it" if from_ else "is empty"
        why = f"all {rejected} {unit} of {name} were rejected" if rejected else f"{name} {empty}"
        raise failure(f"{why}: nothing to learn", REJECTED if rejected else USAGE)
    report, learned = asyncio.run(learn_items(options, items, playbook, err))
    _print(
        report | {"reflections": {**_counts(report), "rejected": rejected}},
        learned,
        as_format(form) if form else natural_form(learned),
        out,
        as_json=as_json,
    )
    conflicts = report["conflicts"]
    for conflict in conflicts if isinstance(conflicts, list) else ():
        err.print(
            f"conflict: {playbook} has other content under the id {printable(conflict)};"
            " nothing was learned from this one: send it under an id of its own",
            markup=False,
            soft_wrap=True,
        )
    if _counts(report)["dead_lettered"]:
        err.print("some items could not be learned from: see 'combee dlq list'")
        raise typer.Exit(1)
    if rejected:
        err.print(f"{rejected} {unit} were rejected")
    if rejected or conflicts:
        raise typer.Exit(REJECTED)


def _read_lines(file: str, name: str, playbook: str, err: Console) -> tuple[list[Item], int]:
    """Return the usable items of a file or standard input and the number of rejected lines; print their errors."""
    ignored: dict[str, Unknown] = {}
    lines = lines_of(read_text(file))
    items, rejected = read_items(
        lines, playbook, lambda line, why: err.print(f"{name}:{line}: {why}", markup=False), ignored
    )
    if ignored:
        remark(f"{name}: {ignored_text(ignored)}")
    return items, rejected


def _counts(report: dict[str, object]) -> dict[str, int]:
    counts = report["reflections"]
    return dict(counts) if isinstance(counts, dict) else {}


def _print(
    report: dict[str, object], playbook: Playbook, form: Format, out: Path | None, *, as_json: bool
) -> None:
    text = playbook_text(playbook, form)
    if out is not None:
        save(out, text)
    if as_json:
        typer.echo(json.dumps(report))
        return
    if out is None:
        typer.echo(text, nl=False)
    console = diagnostics()
    console.print(_summary(report, playbook), soft_wrap=True)
    audit = Audit.model_validate(report["audit"])
    if audit.reflections:
        console.print(f"what its reflections taught: {retention.effects_text(audit)}", soft_wrap=True)
    for line in _left_nothing(report["left_nothing"]):
        console.print(line, markup=False, soft_wrap=True)
    for warning in retention.warnings(playbook).values():
        console.print(f"warning: {warning}", style="yellow", soft_wrap=True)


def _left_nothing(reasons: Any) -> Iterator[str]:
    """Yield which reflections left nothing in the playbook, a line per reason."""
    for why, ids in reasons.items():
        more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
        yield f"{len(ids)} left nothing in the playbook: {why} ({', '.join(ids[:NAMED])}{more})"


def _summary(report: dict[str, object], playbook: Playbook) -> str:
    entries = counts_text(**counts(playbook))
    reflections = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in _counts(report).items())
    return (
        f"{report['playbook']} version {report['version']}: {entries} entries; reflections: {reflections};"
        f" {report['batches']} batches, {report['model_calls']} model calls, {report['seconds']} s"
    )
