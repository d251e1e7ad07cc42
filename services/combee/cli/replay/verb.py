"""``combee replay``: repeat a playbook's learning under another topic prefix."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.progress import Progress

from combee.adapters.ports import Log
from combee.assembly.answerers import held_out
from combee.assembly.backends import connection, create_topics, opened
from combee.assembly.local.deployment import beside, deployment
from combee.assembly.local.preflight import check, model_flag, uses_stand_in
from combee.cli.evaluate import stand_in
from combee.cli.playbook.files import read_text
from combee.cli.replay.recorded import Range
from combee.cli.replay.replaying import Replay, Replayed
from combee.cli.replay.report import OFF_POLICY, plot, table
from combee.cli.replay.shadow import services, shadow_settings
from combee.cli.replay.variants import Job, replay_variants
from combee.cli.shared.console import (
    COLUMNS,
    FAILED,
    diagnostics,
    failure,
    output,
    print_json,
    print_whole,
    remark,
)
from combee.cli.shared.log import open_log
from combee.cli.shared.options import AsJson, PlaybookArgument, Servers, checked_prefix
from combee.cli.shared.plotting import library
from combee.cli.shared.settings import deployed_settings
from combee.core.log.replaying.selection import Selection, time_ms
from combee.core.log.replaying.variant import Variant, parse
from combee.process.settings.loading import Settings
from combee.process.settings.methods import as_configured
from combee_schemas.batch import Batch

FAR_MS = 1 << 53
VARIANTS = "Variants"
T = TypeVar("T")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee replay support/refunds --to combee-replay")(replay)


def replay(
    name: PlaybookArgument,
    *,
    to: Annotated[
        str,
        typer.Option(help="the topic prefix to replay into; its topics are created", callback=checked_prefix),
    ],
    ask: Annotated[
        bool, typer.Option("--ask", help="ask the model again instead of using its recorded answers")
    ] = False,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="with --ask or --variant: the stand-in model (a simulation)")
    ] = False,
    model: Annotated[
        str | None, typer.Option(help="with --ask or --variant: the model, such as openai/gpt-4.1-mini")
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME:key=value,…: a variant with these settings, to compare; may be repeated",
            rich_help_panel=VARIANTS,
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, max=100, help="number of shuffles per variant", rich_help_panel=VARIANTS)
    ] = 1,
    without: Annotated[
        list[str] | None,
        typer.Option(
            help="leave out source:NAME, id:ID, text:WORDS, since:TIME, until:TIME or between:T/T; may be repeated",
            rich_help_panel=VARIANTS,
        ),
    ] = None,
    from_version: Annotated[
        int | None,
        typer.Option(
            min=1, help="begin with this version instead of an empty playbook", rich_help_panel=VARIANTS
        ),
    ] = None,
    versions: Annotated[
        str | None,
        typer.Option(help="only reflections behind versions FIRST..LAST", rich_help_panel=VARIANTS),
    ] = None,
    offsets: Annotated[
        str | None, typer.Option(help="only reflections at offsets FIRST..END", rich_help_panel=VARIANTS)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help="only reflections from this time on (ISO 8601, UTC)", rich_help_panel=VARIANTS),
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="only reflections before this time", rich_help_panel=VARIANTS)
    ] = None,
    questions: Annotated[
        Path | None,
        typer.Option(help="score every result on these held-out samples", rich_help_panel=VARIANTS),
    ] = None,
    sim_option: Annotated[
        list[str] | None,
        typer.Option(help="with --simulated: an option of 'sim serve'", rich_help_panel=VARIANTS),
    ] = None,
    plot_file: Annotated[
        Path | None,
        typer.Option("--plot", help="draw the results (needs matplotlib)", rich_help_panel=VARIANTS),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="do not ask about the cost", rich_help_panel=VARIANTS)
    ] = False,
    timeout: Annotated[float, typer.Option(min=0, help="maximum time per step (s)")] = 120.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Re-run learning from the log, or with other settings.

    Without --variant, the batches must be planned the same and recorded answers must give the same versions; else
    exit 1.
    """
    flag = model_flag(simulated=simulated, model=model)
    settings = deployed_settings(bootstrap_servers=bootstrap_servers, model=flag, eval_questions=questions)
    if to == settings.kafka.topic_prefix:
        raise typer.BadParameter("--to is the prefix that is replayed: choose another")
    given = (without, from_version, versions, offsets, since, until, questions, sim_option, plot_file)
    if not variant and (any(given) or seeds > 1 or yes):
        raise typer.BadParameter(
            "ranges, --without, --questions, --seeds, --plot and --yes are for variants: add --variant NAME"
        )
    if variant and ask:
        raise typer.BadParameter("a variant asks the model whatever is not recorded: leave --ask out")
    if variant:
        if flag is None:
            settings = beside(deployment(settings), settings)
        bounds = {"versions": versions, "offsets": offsets, "since": since, "until": until}
        job = Job(
            name=name,
            settings=settings,
            to=to,
            range=_range(**bounds),
            variants=_variants(variant),
            seeds=range(seeds),
            without=[_parsed(Selection.parse, rule) for rule in without or ()],
            base=from_version,
            simulated=uses_stand_in(settings.model, simulated=simulated),
            sim_options=sim_option or (),
            questions=held_out(settings, read_text) if questions else (),
            simulated_answers=stand_in(settings, simulated=simulated) if questions else None,
            timeout_s=timeout,
            agreed=yes,
        )
        _compare(job, plot_file, as_json=as_json)
        return
    if flag is None:
        settings = beside(deployment(settings), settings)
    elif not ask:
        raise typer.BadParameter("--model and --simulated choose the model for --ask: add --ask")
    replayed = asyncio.run(_replay(settings, name, to, timeout, ask=ask, simulated=simulated))
    differs = bool(replayed.plans_differ or (replayed.contents_differ and not ask))
    if as_json:
        print_json(
            {
                "playbook": name,
                "from": settings.kafka.topic_prefix,
                "to": to,
                "versions": replayed.versions,
                "batches": replayed.batches,
                "plans_differ": replayed.plans_differ,
                "contents_differ": replayed.contents_differ,
                "model_calls": replayed.model_calls,
            }
        )
    else:
        output().print(_summary(name, to, replayed), markup=False, soft_wrap=True)
    if differs:
        raise typer.Exit(FAILED)


def _compare(job: Job, plot_file: Path | None, *, as_json: bool) -> None:
    if plot_file is not None:
        library("matplotlib.figure")
    rows = asyncio.run(replay_variants(job))
    if rows is None:
        raise failure("no model was called; --yes agrees to the cost", FAILED)
    if plot_file is not None:
        plot(rows, plot_file)
    if as_json:
        print_json(
            {
                "playbook": job.name,
                "from": job.settings.kafka.topic_prefix,
                "runs": [row.fields() for row in rows],
                "note": OFF_POLICY,
            }
        )
        return
    print_whole(table(rows))
    remark(OFF_POLICY)


def _variants(given: Sequence[str]) -> list[Variant]:
    variants = [_parsed(parse, text) for text in given]
    names = [variant.name for variant in variants]
    if len(set(names)) < len(names):
        raise typer.BadParameter("two variants have the same name: rename one")
    for variant in variants:
        for rule in variant.without:
            _parsed(Selection.parse, rule)
    return variants


def _range(*, versions: str | None, offsets: str | None, since: str | None, until: str | None) -> Range:
    times = None
    if since or until:
        times = (_parsed(time_ms, since) if since else 0, _parsed(time_ms, until) if until else FAR_MS)
    return Range(
        versions=_bounds(versions, "--versions") if versions else None,
        offsets=_bounds(offsets, "--offsets") if offsets else None,
        times_ms=times,
    )


def _bounds(text: str, option: str) -> tuple[int, int]:
    first, dots, last = text.partition("..")
    if not (dots and first.isdigit() and last.isdigit() and int(first) <= int(last)):
        raise typer.BadParameter(f"{option} is FIRST..LAST, such as 3..17, and not {text!r}")
    return int(first), int(last)


def _parsed(read: Callable[[str], T], text: str) -> T:
    try:
        return read(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _summary(name: str, to: str, replayed: Replayed) -> str:
    plans = f"other plans for batches {replayed.plans_differ}" if replayed.plans_differ else "identical plans"
    contents = (
        f"versions {replayed.contents_differ} have other content"
        if replayed.contents_differ
        else "identical contents"
    )
    made = f"{replayed.versions} versions of {name} from {replayed.batches} batches under {to}"
    return f"{made}: {plans}, {contents}; {replayed.model_calls} model calls"


async def _replay(
    settings: Settings, name: str, to: str, timeout_s: float, *, ask: bool, simulated: bool
) -> Replayed:
    simulated = ask and uses_stand_in(settings.model, simulated=simulated)
    if ask:
        await check(settings, simulated=simulated)
    async with open_log(settings) as (log, servers):
        reading = Replay(log, name, recorded=not ask, timeout_s=timeout_s)
        there = await _settings(settings, log, to, await reading.read(), ask=ask)
        await create_topics(there, connection(there, servers))
        console = diagnostics()
        with Progress(*COLUMNS, console=console, transient=True, disable=not console.is_terminal) as bars:
            bar = bars.add_task("starting its services", total=None)
            async with (
                opened(there, servers) as target,
                services(there, servers, ask=ask, simulated=simulated),
            ):
                bars.update(bar, description="versions")
                return await reading.run(
                    target, lambda done, total: bars.update(bar, completed=done, total=total)
                )


async def _settings(
    settings: Settings, log: Log, to: str, batches: Sequence[Batch], *, ask: bool
) -> Settings:
    """Return the shadow's settings, with the options of the last batch; only a scan that asks compares texts."""
    last = batches[-1].plan.settings if batches else None
    there = await shadow_settings(settings, log, to, batches, **(as_configured(last) if last else {}))
    limits = {"playbook_tokens": last.playbook_tokens} if last and last.playbook_tokens else {}
    embeddings = {"embedding_model": last.embeddings} if ask and last and last.embeddings else {}
    return replace(
        there,
        playbook=there.playbook.model_copy(update=limits),
        model=there.model.model_copy(update=embeddings),
    )
