"""``combee dlq``: dead letters and their reasons; secrets in them are not shown."""

import asyncio
import json
from collections import deque
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from combee.adapters.clock import moment
from combee.adapters.ports import FatalError
from combee.cli.dlq import decide
from combee.cli.dlq.decide import Reason, Service, checked_id
from combee.cli.shared.console import output, print_json, reading
from combee.cli.shared.log import open_log
from combee.cli.shared.options import AsJson, Servers
from combee.cli.shared.settings import deployed_settings
from combee.core.text.forms import printable
from combee.log.commands.dead_letters import Filters
from combee.log.inspection import dead_letters
from combee.log.reports.dead_letters import LetterInFull, LetterReport, letter_in_full, letter_report
from combee.process.settings.loading import Settings
from combee_schemas.dead_letter import LetterId

PAYLOAD = {"body", "text", "head_hex"}
dlq = typer.Typer(help="Dead letters: list, show, retry, drop.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    decide.register(dlq)
    app.add_typer(dlq, name="dlq")


@dlq.callback()
def group() -> None:
    """Dead letters: list, show, retry, drop."""


@dlq.command("list", epilog="Example: combee dlq list --service reflect --limit 20 --json")
def list_(
    *,
    limit: Annotated[
        int, typer.Option(min=1, help="maximum number of dead letters to list, newest first")
    ] = 50,
    everything: Annotated[
        bool, typer.Option("--all", help="include retried and dropped dead letters")
    ] = False,
    service: Service = None,
    reason: Reason = None,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """List open dead letters, newest first."""
    settings = deployed_settings(bootstrap_servers=bootstrap_servers)
    filters = Filters(service=service, reason=reason, resolved=everything)
    total, rows = asyncio.run(_list(settings, limit, filters))
    if as_json:
        letters = [row.model_dump(exclude_unset=True) for row in rows]
        print_json({"total": total, "dead_letters": letters})
        return
    _print(rows, everything=everything)
    if total > len(rows):
        output().print(f"{len(rows)} of {total}; more with --limit")


def _print(rows: list[LetterReport], *, everything: bool) -> None:
    names = ("id", "time (UTC)", "state", "service", "origin", "attempts", "record", "playbook", "reason")
    table = Table(*names, box=None)
    for row in rows:
        known = (row.id, moment(row.at_ms), row.state, row.service, row.origin.text)
        # As text: brackets in a plain cell would be read as markup, and could be wrong as such.
        theirs = (Text(printable(part)) for part in (row.record_id, row.playbook, row.reason))
        table.add_row(*known, str(row.attempts), *theirs)
    nothing = "no dead letters" if everything else "no open dead letters"
    output().print(table if rows else nothing)


async def _list(settings: Settings, limit: int, filters: Filters) -> tuple[int, list[LetterReport]]:
    total = 0
    kept: deque[LetterReport] = deque(maxlen=limit)
    async with open_log(settings) as (log, _):
        with reading() as progress:
            decided = await dead_letters.resolutions(log)
            async for letter in dead_letters.letters(
                log, lambda read, of: progress(dead_letters.TOPIC, read, of)
            ):
                resolution = decided.get(letter.id)
                if filters.match(letter, resolution):
                    total += 1
                    kept.append(letter_report(letter.id, letter.as_read, resolution))
    return total, list(reversed(kept))


@dlq.command(epilog="Example: combee dlq show 0-17")
def show(
    identity: Annotated[str, typer.Argument(metavar="ID", help="as 'dlq list' gives it, such as 0-17")],
    *,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter: its reason, origin, content and decision."""
    wanted = checked_id(identity)
    letter = asyncio.run(_show(deployed_settings(bootstrap_servers=bootstrap_servers), wanted))
    shown = letter.model_dump(exclude_unset=True)
    if as_json:
        print_json(shown)
        return
    console = output()
    for name, value in shown.items():
        if value is None and name in PAYLOAD:
            continue  # only one form of it is there
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        console.print(f"{name}: {printable(text)}", markup=False, soft_wrap=True)


async def _show(settings: Settings, wanted: LetterId) -> LetterInFull:
    async with open_log(settings) as (log, _):
        stored = (await dead_letters.letters_at(log, [wanted])).get(wanted)
        if stored is None:
            raise FatalError(f"there is no dead letter {wanted}; 'combee dlq list --all' shows what there is")
        resolution = (await dead_letters.resolutions(log)).get(wanted)
        return letter_in_full(wanted, stored.as_read, resolution, is_read=stored.letter is not None)
