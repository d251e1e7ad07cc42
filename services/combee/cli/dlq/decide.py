"""``combee dlq retry`` and ``drop``: decide on dead letters; each decision is recorded once in the log."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any

import typer

from combee.adapters.clock import SystemClock
from combee.adapters.ports import FatalError
from combee.cli.dlq.view import decision, place_text
from combee.cli.shared.console import REJECTED, clean, output, print_json, reading
from combee.cli.shared.log import open_log
from combee.cli.shared.options import AsJson, Servers
from combee.cli.shared.settings import deployed_settings
from combee.core.commands import RefusedError
from combee.core.text.redact import redacted
from combee.log.commands import dead_letters
from combee.log.commands.dead_letters import Decided, Filters
from combee.process.settings.loading import Settings
from combee_schemas.dead_letter import LetterId, Resolution, letter_id

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


def _document(decided: Decided, verb: str) -> dict[str, Any]:
    """Return the documented shape."""
    return {
        verb: [_row(resolution) for resolution in decided.done],
        "unchanged": [_row(resolution) for resolution in decided.before],
        "refused": [{"id": str(refused.id), "why": redacted(refused.why)} for refused in decided.refused],
    }


def _row(resolution: Resolution) -> dict[str, Any]:
    origin = {
        "topic": resolution.origin_topic,
        "partition": resolution.origin_partition,
        "offset": resolution.origin_offset,
    }
    shown = {"record_id": redacted(resolution.record_id), "playbook": resolution.playbook, "origin": origin}
    return {"id": str(resolution.letter), **shown, **decision(resolution)}


def _show(decided: Decided, verb: str, *, as_json: bool) -> None:
    shown = _document(decided, verb)
    if as_json:
        print_json(shown)
    else:
        _print(shown, verb)
    if decided.refused:
        raise typer.Exit(REJECTED)


def _print(shown: dict[str, Any], verb: str) -> None:
    console = output()
    for row in shown[verb]:
        to = f" to {place_text(row['to'])} as attempt {row['attempt']}" if "to" in row else ""
        what = clean(f"{row['record_id'] or place_text(row['origin'])}")
        console.print(f"{row['id']} {verb}: {what}{to}", markup=False, soft_wrap=True)
    for row in shown["unchanged"]:
        console.print(f"{row['id']} unchanged: {row['decision']} already", markup=False, soft_wrap=True)
    for row in shown["refused"]:
        remedy = f"'combee dlq drop {row['id']}' closes it"
        console.print(f"{row['id']} refused: {clean(row['why'])}; {remedy}", markup=False, soft_wrap=True)
    if not any(shown.values()):
        console.print("no open dead letters")
    if verb == "retried" and shown[verb]:
        console.print(
            "'combee ledger' shows when they are in a playbook; a record that fails again becomes a new dead letter"
        )
