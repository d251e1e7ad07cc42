"""``combee replay``: what made a playbook, once more under another topic prefix."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from combee.backends import connection, create_topics, opened
from combee.cli.replay.replaying import Replay, Replayed
from combee.cli.shared.console import COLUMNS, FAILED, diagnostics, output, print_json
from combee.cli.shared.log import open_log
from combee.cli.shared.options import AsJson, Name, Servers, checked_prefix
from combee.local.deployment import beside, deployment
from combee.local.preflight import check, model_flag, stands_in
from combee.local.stack import StackOptions, stack
from combee.ports import Log
from combee.settings.loading import Settings, load_settings
from combee.settings.methods import as_configured
from combee_schemas import topics
from combee_schemas.batch import Batch

NO_CAP = 10**15


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee replay support/refunds --to combee-replay")(replay)


def replay(
    name: Name,
    *,
    to: Annotated[
        str, typer.Option(help="the other topic prefix; its topics are created", callback=checked_prefix)
    ],
    ask: Annotated[
        bool, typer.Option("--ask", help="ask the model again instead of using its recorded answers")
    ] = False,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="with --ask: the stand-in model (a simulation)")
    ] = False,
    model: Annotated[str | None, typer.Option(help="with --ask: such as openai/gpt-4.1-mini")] = None,
    timeout: Annotated[float, typer.Option(min=0, help="give up when a step takes so long (s)")] = 120.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Give a copy the same input; exit 1 if it is planned otherwise, or says otherwise on the same answers."""
    flag = model_flag(simulated=simulated, model=model)
    settings = load_settings(bootstrap_servers=bootstrap_servers, model=flag)
    if to == settings.kafka.topic_prefix:
        raise typer.BadParameter("--to names the prefix to replay from: choose another")
    if flag is None:
        settings = beside(deployment(settings), settings)
    elif not ask:
        raise typer.BadParameter("--model and --simulated choose whom --ask asks: add --ask")
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


def _summary(name: str, to: str, replayed: Replayed) -> str:
    plans = f"other plans for batches {replayed.plans_differ}" if replayed.plans_differ else "identical plans"
    contents = (
        f"versions {replayed.contents_differ} say something else"
        if replayed.contents_differ
        else "identical contents"
    )
    made = f"{replayed.versions} versions of {name} from {replayed.batches} batches under {to}"
    return f"{made}: {plans}, {contents}; {replayed.model_calls} model calls"


async def _replay(
    settings: Settings, name: str, to: str, timeout_s: float, *, ask: bool, simulated: bool
) -> Replayed:
    simulated = ask and stands_in(settings.model, simulated=simulated)
    if ask:
        await check(settings, simulated=simulated)
    async with open_log(settings) as (log, servers):
        reading = Replay(log, name, recorded=not ask, timeout_s=timeout_s)
        there = await _settings(settings, log, to, await reading.read())
        await create_topics(there, connection(there, servers))
        async with opened(there, servers) as target, _services(there, servers, ask=ask, simulated=simulated):
            console = diagnostics()
            with Progress(*COLUMNS, console=console, transient=True, disable=not console.is_terminal) as bars:
                bar = bars.add_task("versions", total=None)
                return await reading.run(
                    target, lambda done, total: bars.update(bar, completed=done, total=total)
                )


async def _settings(settings: Settings, log: Log, to: str, batches: Sequence[Batch]) -> Settings:
    """Return settings under which only the replay closes windows, on topics of the same layout, without caps."""
    layout = {
        "topic_prefix": to,
        "partitions": await log.partitions(topics.REFLECTIONS.name),
        "scan_partitions": await log.partitions(topics.SCAN[0].name),
    }
    largest = max((len(batch.members) for batch in batches), default=1)
    batch = {"batch_size": largest + 1, **(as_configured(batches[-1].plan.settings) if batches else {})}
    budget = batches[-1].plan.settings.playbook_tokens if batches else 0
    limits = {"playbook_tokens": budget} if budget else {}
    caps = {name: NO_CAP for name in ("daily_tokens", "daily_cost") if getattr(settings.spend, name)}
    return replace(
        settings,
        kafka=settings.kafka.model_copy(update=layout),
        batch=settings.batch.model_copy(update=batch),
        playbook=settings.playbook.model_copy(update=limits),
        spend=settings.spend.model_copy(update=caps),
    )


@asynccontextmanager
async def _services(settings: Settings, servers: str, *, ask: bool, simulated: bool) -> AsyncIterator[None]:
    with tempfile.TemporaryDirectory(prefix="combee-replay-") as folder:
        options = StackOptions(
            settings=settings,
            bootstrap_servers=servers,
            folder=Path(folder),
            simulated=simulated,
            roles=("publish", *(["scan"] if ask else []), "shuffle"),
        )
        async with stack(options):
            yield
