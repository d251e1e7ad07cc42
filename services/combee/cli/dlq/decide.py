"""``combee dlq retry`` and ``drop``: decide on dead letters; each decision is recorded once in the log."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Annotated

import typer

from combee.adapters.clock import SystemClock
from combee.adapters.ports import FatalError
from combee.cli.shared.console import REJECTED, output, print_json, reading
from combee.cli.shared.log import open_log
from combee.cli.shared.options import AsJson, Servers
from combee.cli.shared.settings import deployed_settings
from combee.core.commands import RefusedError
from combee.core.text.forms import printable
from combee.core.text.redact import redacted
from combee.log.commands import dead_letters
from combee.log.commands.dead_letters import Decided, Filters
from combee.log.reports.dead_letters import DecidedReport, decided_report
from combee.process.settings.loading import Settings
from combee_schemas.dead_letter import LetterId, letter_id

Service = Annotated[str | None, typer.Option(help="only dead letters of this service, such as reflect")]
Reason = Annotated[str | None, typer.Option(help="only dead letters whose reason contains this")]


def checked_id(text: str) -> LetterId:
    """Return a dead letter's id, or refuse it as wrong usage."""
    identity = letter_id(text)
    if identity is None:
        raise typer.BadParameter(f"{text!r} is not the id of a dead letter; 'combee dlq list' shows them")
    return identity


def register(dlq: typer.Typer) -> None:
    """Add the verbs."""
    dlq.command(epilog="Example: combee dlq retry --all --service reflect")(retry)
    dlq.command(epilog="Example: combee dlq drop 0-17 0-18 --note 'a load test'")(drop)


def retry(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]…", help="such as 0-17")] = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="all open dead letters that match the filters")
    ] = False,
    service: Service = None,
    reason: Reason = None,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Send the unchanged records of dead letters again, after their cause is fixed; exit 3 if some cannot be sent."""
    if everything == bool(ids):
        raise typer.BadParameter("give ids, or --all")
    if ids and (service or reason):
        raise typer.BadParameter("--service and --reason need --all")
    wanted = [checked_id(identity) for identity in ids or ()]
    settings = deployed_settings(bootstrap_servers=bootstrap_servers)
    chosen = wanted or Filters(service=service, reason=reason)
    decided = asyncio.run(_retry(settings, chosen))
    _show(decided, "retried", as_json=as_json)


def drop(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="such as 0-17")],
    *,
    note: Annotated[str, typer.Option(help="the reason, recorded with the decision")] = "",
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Close dead letters without retrying them; nothing is deleted."""
    wanted = [checked_id(identity) for identity in ids]
    settings = deployed_settings(bootstrap_servers=bootstrap_servers)
    _show(asyncio.run(_drop(settings, wanted, note)), "dropped", as_json=as_json)


async def _retry(settings: Settings, chosen: Sequence[LetterId] | Filters) -> Decided:
    async with open_log(settings) as (log, _):
        with reading() as progress, _known_letters():
            return await dead_letters.retry(
                log, SystemClock(), chosen, on_progress=partial(progress, "sent again")
            )


async def _drop(settings: Settings, wanted: Sequence[LetterId], note: str) -> Decided:
    async with open_log(settings) as (log, _):
        with _known_letters():
            return await dead_letters.drop(log, SystemClock(), wanted, note)


@contextmanager
def _known_letters() -> Iterator[None]:
    """Add a hint to the error of an unknown dead letter."""
    try:
        yield
    except RefusedError as error:
        raise FatalError(f"{error}; 'combee dlq list' shows what there is") from error


def _show(decided: Decided, verb: str, *, as_json: bool) -> None:
    done, before = ([*map(decided_report, found)] for found in (decided.done, decided.before))
    refused = {str(letter.id): redacted(letter.why) for letter in decided.refused}
    if as_json:
        fields = partial(DecidedReport.model_dump, exclude_unset=True)
        print_json(
            {
                verb: [*map(fields, done)],
                "unchanged": [*map(fields, before)],
                "refused": [{"id": identity, "why": why} for identity, why in refused.items()],
            }
        )
    else:
        _print(verb, done, before, refused)
    if refused:
        raise typer.Exit(REJECTED)


def _print(
    verb: str, done: Sequence[DecidedReport], before: Sequence[DecidedReport], refused: Mapping[str, str]
) -> None:
    console = output()
    for row in done:
        to = f" to {row.to.text} as attempt {row.attempt}" if row.to else ""
        what = printable(row.record_id or row.origin.text)
        console.print(f"{row.id} {verb}: {what}{to}", markup=False, soft_wrap=True)
    for row in before:
        console.print(f"{row.id} unchanged: {row.decision} already", markup=False, soft_wrap=True)
    for identity, why in refused.items():
        remedy = f"'combee dlq drop {identity}' closes it"
        console.print(f"{identity} refused: {printable(why)}; {remedy}", markup=False, soft_wrap=True)
    if not (done or before or refused):
        console.print("no open dead letters")
    if verb == "retried" and done:
        console.print(
            "'combee ledger' shows when they are in a playbook; a record that fails again becomes a new dead letter"
        )
