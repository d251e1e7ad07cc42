"""``combee dlq retry`` and ``drop``: what becomes of dead letters; both go down in the log, and once only."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from combee.cli.console import REJECTED, clean, output, print_json, reading
from combee.cli.dlq.select import Filters, Reason, Service, checked_id
from combee.cli.dlq.view import decision, place_text
from combee.cli.options import AsJson, Servers
from combee.cli.playbook.lookup import newest_snapshots
from combee.clock import SystemClock
from combee.commands import resending
from combee.commands.resending import Refused
from combee.core.dead_letters.resending import PLANNED
from combee.core.redact import redacted
from combee.inspection import dead_letters
from combee.inspection.dead_letters import Found
from combee.ports import FatalError, Log
from combee.settings.loading import Settings, load_settings
from combee_schemas.dead_letter import LetterId, Resolution

AT_ONCE = 100
"""Dead letters in memory with their bytes; an interruption between two such lots repeats nothing."""


@dataclass(slots=True)
class Decided:
    """What came of a verb."""

    done: list[Resolution] = field(default_factory=list)
    before: list[Resolution] = field(default_factory=list)
    """Decisions that had been taken already: they hold, and nothing changes."""
    refused: list[Refused] = field(default_factory=list)

    def as_json(self, verb: str) -> dict[str, Any]:
        """Return the documented shape."""
        return {
            verb: [_row(one) for one in self.done],
            "unchanged": [_row(one) for one in self.before],
            "refused": [{"id": str(one.id), "why": redacted(one.why)} for one in self.refused],
        }


def _row(one: Resolution) -> dict[str, Any]:
    origin = {"topic": one.origin_topic, "partition": one.origin_partition, "offset": one.origin_offset}
    shown = {"record_id": redacted(one.record_id), "playbook": one.playbook, "origin": origin}
    return {"id": str(one.letter), **shown, **decision(one)}


def register(dlq: typer.Typer) -> None:
    """Add the verbs."""
    dlq.command(epilog="Example: combee dlq retry --all --service reflect")(retry)
    dlq.command(epilog="Example: combee dlq drop 0-17 0-18 --note 'a load test'")(drop)


def retry(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]…", help="such as 0-17")] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="all open ones that the filters leave")] = False,
    service: Service = None,
    reason: Reason = None,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Send the records of dead letters again, as they were; once the cause is mended. Exit 3 if some cannot be."""
    if everything == bool(ids):
        raise typer.BadParameter("give ids, or --all")
    if ids and (service or reason):
        raise typer.BadParameter("--service and --reason choose among --all")
    wanted = [checked_id(one) for one in ids or ()]
    settings = load_settings(bootstrap_servers=bootstrap_servers)
    decided = asyncio.run(_retry(settings, wanted, Filters(service=service, reason=reason)))
    _show(decided, "retried", as_json=as_json)


def drop(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="such as 0-17")],
    *,
    note: Annotated[str, typer.Option(help="why, for whoever asks later")] = "",
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Let dead letters go, for the record: nothing is deleted, they are open no longer."""
    wanted = [checked_id(one) for one in ids]
    settings = load_settings(bootstrap_servers=bootstrap_servers)
    _show(asyncio.run(_drop(settings, wanted, note)), "dropped", as_json=as_json)


async def _retry(settings: Settings, wanted: Sequence[LetterId], filters: Filters) -> Decided:
    from combee.cli.log import open_log  # noqa: PLC0415 - --help stays quick

    decided = Decided()
    async with open_log(settings) as (log, _):
        with reading() as progress:
            known = await dead_letters.resolutions(log)
            ids = wanted or await _open(log, filters, known)
            done = 0
            async for found in _lots(log, ids, known, decided):
                decisions, refused = await resending.retry(
                    log, SystemClock(), found, await _published(log, found)
                )
                decided.done += decisions
                decided.refused += refused
                done += len(found)
                progress("sent again", done, len(ids))
    return decided


async def _drop(settings: Settings, wanted: Sequence[LetterId], note: str) -> Decided:
    from combee.cli.log import open_log  # noqa: PLC0415 - --help stays quick

    decided = Decided()
    async with open_log(settings) as (log, _):
        known = await dead_letters.resolutions(log)
        async for found in _lots(log, wanted, known, decided):
            decided.done += await resending.drop(log, SystemClock(), found, note)
    return decided


async def _open(log: Log, filters: Filters, known: dict[LetterId, Resolution]) -> list[LetterId]:
    found = dead_letters.letters(log, lambda _read, _total: None)
    return [one.id async for one in found if filters.match(one, known.get(one.id))]


async def _lots(
    log: Log, ids: Sequence[LetterId], known: dict[LetterId, Resolution], decided: Decided
) -> AsyncIterator[Sequence[Found]]:
    """Yield the dead letters that nothing was decided about, lot by lot."""
    once = list(dict.fromkeys(ids))
    decided.before += [known[one] for one in once if one in known]
    undecided = [one for one in once if one not in known]
    for start in range(0, len(undecided), AT_ONCE):
        lot = undecided[start : start + AT_ONCE]
        found = await dead_letters.letters_at(log, lot)
        missing = [str(one) for one in lot if one not in found]
        if missing:
            raise FatalError(
                f"there is no dead letter {', '.join(missing)}; 'combee dlq list' shows what there is"
            )
        yield [found[one] for one in lot]


async def _published(log: Log, found: Sequence[Found]) -> dict[str, int]:
    """Return the last batch with a version by playbook, if any of these records belongs to a batch."""
    if not any(one.letter and one.letter.origin_topic in PLANNED for one in found):
        return {}
    return {name: one.batch_sequence for name, one in (await newest_snapshots(log)).items()}


def _show(decided: Decided, verb: str, *, as_json: bool) -> None:
    shown = decided.as_json(verb)
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
            "'combee ledger' shows when they are in a playbook; what fails again is a dead letter again"
        )
