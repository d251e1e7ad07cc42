"""``combee playbook diff``: differences between two versions, entry by entry."""

import asyncio
import difflib
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.text import Text

from combee.adapters.ports import Log
from combee.cli.playbook.lookup import find_version, resolve_version_or_branch
from combee.cli.shared.console import output, print_json
from combee.cli.shared.log import open_log
from combee.cli.shared.options import AsJson, Name, Servers, places
from combee.cli.shared.settings import deployed_settings
from combee.core.formats.text import split_lines
from combee.core.playbook.comparison import Comparison, Counted, Reworded, compare
from combee.core.playbook.versions import empty
from combee.core.text.forms import printable
from combee.log.history import History
from combee.process.settings.loading import Settings
from combee_schemas.playbook import Playbook

COLOURS = {"+": "green", "-": "red", " ": "dim", "~": "yellow"}
Place = Annotated[
    str | None,
    typer.Argument(
        help="a version's number, a label, latest, or a branch of the playbook", autocompletion=places
    ),
]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee playbook diff support/refunds production latest")(diff)


def diff(
    name: Name,
    before: Place = None,
    after: Place = None,
    *,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Compare two versions: by default the last two; a single given version is compared with the newest.

    A branch, or a branch's playbook, may be given instead of a version and means its newest: NAME NAME@exp.
    """
    settings = deployed_settings(bootstrap_servers=bootstrap_servers)
    comparison = asyncio.run(_diff(settings, name, before, after))
    if as_json:
        print_json(as_document(comparison))
        return
    for line in lines(comparison):
        output().print(line, soft_wrap=True)


async def _diff(settings: Settings, name: str, before: str | None, after: str | None) -> Comparison:
    async with open_log(settings) as (log, _):
        older = await resolve_version_or_branch(log, name, before) if before else None
        if after is None and older is not None and older.name != name:
            # A branch as the only argument is the newer side of the comparison.
            return await compared(log, await find_version(log, name), older)
        newer = await resolve_version_or_branch(log, name, after) if after else await find_version(log, name)
        return await compared(log, older or await _before(log, newer), newer)


async def compared(log: Log, older: Playbook, newer: Playbook) -> Comparison:
    """Return the differences; the versions in between show why entries left."""
    if older.name != newer.name:
        return compare(older, newer, shared=await _shared(log, older, newer))
    places = older.history_offset + 1, newer.history_offset
    return compare(older, newer, [version async for version in History(log).between(newer.name, *places)])


async def _shared(log: Log, *lines: Playbook) -> set[str]:
    """Return the ids that mean the same entry in both: the ids in their playbook at the first fork."""
    forks = [line.branch for line in lines if line.branch is not None]
    first = min(forks, key=lambda branch: branch.version, default=None)
    forked = await History(log).exactly(first.of, first.version) if first else None
    return {entry.id for entry in forked.entries} if forked else set()


async def _before(log: Log, newer: Playbook) -> Playbook:
    return await find_version(log, newer.name, newer.version - 1) if newer.version > 1 else empty(newer.name)


def as_document(comparison: Comparison) -> dict[str, Any]:
    """Return the stable shape of ``diff --json``."""
    own = {"before", "after", "sections", "name_before"}
    parts = comparison.model_dump(mode="json", exclude=own, exclude_none=True)
    line = {"from_name": comparison.name_before} if comparison.name_before else {}
    return {"name": parts.pop("name"), **line, "from": comparison.before, "to": comparison.after, **parts}


def lines(comparison: Comparison) -> Iterator[Text]:
    """Yield the comparison as text: a title, then sections with removed, added and reworded entries."""
    counts = ", ".join(f"{count} {what}" for what, count in comparison.counts().items()) or "nothing differs"
    numbers = f"{comparison.name} version {comparison.before} → {comparison.after}"
    if comparison.name_before:
        older = f"{comparison.name_before} version {comparison.before}"
        numbers = f"{older} → {comparison.name} version {comparison.after}"
    title = f"{numbers}: {counts}, {comparison.unchanged} unchanged"
    yield Text(printable(title), style="bold")
    yield from (_line("-", f"## {section}") for section in comparison.sections_removed)
    yield from (_line("+", f"## {section}") for section in comparison.sections_added)
    for section in comparison.sections:
        inside = list(_section(comparison, section))
        if inside:
            yield Text(f"@@ {printable(section)} @@", style="cyan")
            yield from inside
    if comparison.conflicts:
        yield Text("@@ conflicts, for a person to decide @@", style="cyan")
        yield from (_line("~", f"[{conflict.id}] {conflict.why}") for conflict in comparison.conflicts)
    if comparison.counted:
        yield Text("@@ counts @@", style="cyan")
        yield from map(_counts, comparison.counted)


def _section(comparison: Comparison, section: str) -> Iterator[Text]:
    for removed in comparison.removed:
        if removed.section == section:
            remark = "" if removed.word == "removed" else f" ({removed.word})"
            yield from _whole("-", removed.id, removed.content, remark)
    for change in comparison.changed:
        if change.section == section:
            yield from _change(change)
    for added in comparison.added:
        if added.section == section:
            yield from _whole("+", added.id, added.content)


def _whole(sign: str, entry_id: str, content: str, remark: str = "") -> Iterator[Text]:
    first, *rest = split_lines(content)
    yield _line(sign, f"[{entry_id}]{remark} {first}")
    yield from (_line(sign, f"  {line}") for line in rest)


def _change(change: Reworded) -> Iterator[Text]:
    """Yield an entry's change; a long text is reduced to the lines around the change."""
    if change.section_before != change.section:
        yield _line("~", f"[{change.id}] moved here from {change.section_before}")
    was, now = split_lines(change.before), split_lines(change.after)
    if len(was) == len(now) == 1:
        yield from _whole("-", change.id, change.before)
        yield from _whole("+", change.id, change.after)
        return
    yield _line(" ", f"[{change.id}]")
    for line in list(difflib.unified_diff(was, now, n=2, lineterm=""))[2:]:
        yield _line(line[0] if line[0] in "+-" else " ", f"  {line[1:] if line[0] in '+- ' else line}")


def _counts(counted: Counted) -> Text:
    parts = ((counted.helpful, "helpful"), (counted.harmful, "harmful"), (counted.evidence, "evidence"))
    return _line("~", f"[{counted.id}] " + ", ".join(f"{count:+d} {name}" for count, name in parts if count))


def _line(sign: str, text: str) -> Text:
    return Text(f"{sign} {printable(text)}", style=COLOURS[sign])
