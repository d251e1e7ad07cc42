"""``combee why ENTRY``: which versions, reflections and runs taught it."""

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.text import Text

from combee.adapters.clock import moment
from combee.adapters.ports import FatalError, Log
from combee.cli.shared.console import output, print_json, reading, shortened
from combee.cli.shared.log import open_log
from combee.cli.shared.options import AsJson, Servers, checked_line, line_names
from combee.cli.shared.settings import deployed_settings
from combee.core.names.sources import name_text, source_text
from combee.core.playbook.versions import origin_text
from combee.core.text.forms import printable
from combee.log.history import newest_playbooks
from combee.log.inspection.lineage import Lineage, Source, lineage
from combee.process.settings.loading import Settings
from combee_schemas.base import playbook_of

MAX_SOURCES = 10
MAX_TEXT = 300


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee why calc-00012 --playbook support/refunds")(why)


def why(
    name_or_entry: Annotated[
        str,
        typer.Argument(
            metavar="ENTRY|NAME",
            help="the entry's id, as 'combee playbook show' prints it; its playbook may stand before it",
            autocompletion=line_names,
        ),
    ],
    entry: Annotated[str | None, typer.Argument(hidden=True, metavar="ENTRY")] = None,
    *,
    playbook: Annotated[
        str | None,
        typer.Option(
            help="the playbook; needed only if several have an entry with this id, or the entry was removed",
            callback=lambda given: given and checked_line(given),
            autocompletion=line_names,
        ),
    ] = None,
    traces: Annotated[bool, typer.Option(help="also look up the runs")] = True,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Show what taught an entry: its versions, reflections, runs."""
    if entry is None:
        entry = name_or_entry
    elif playbook in {None, checked_line(name_or_entry)}:
        playbook = name_or_entry
    else:
        raise typer.BadParameter(
            f"{name_or_entry} and --playbook {playbook} name two playbooks: give one of them"
        )
    settings = deployed_settings(bootstrap_servers=bootstrap_servers)
    origins = asyncio.run(_why(settings, entry, playbook, traces=traces))
    if as_json:
        print_json(as_document(origins))
        return
    for line in lines(origins):
        output().print(line, soft_wrap=True)


async def _why(settings: Settings, entry: str, name: str | None, *, traces: bool) -> Lineage:
    async with open_log(settings) as (log, _):
        with reading() as show:
            where = await found_in(log, entry, name)
            return await lineage(log, where, entry, traces=traces, on_progress=show)


async def found_in(log: Log, entry_id: str, name: str | None) -> str:
    """Return the playbook that has an entry, else the branch that has it.

    Raises
    ------
    FatalError
        If no playbook has it, or several do.
    """
    playbooks = await newest_playbooks(log)
    if name is not None:
        return name
    having = [
        book_name
        for book_name, book in playbooks.items()
        if any(entry.id == entry_id for entry in book.entries)
    ]
    having = [line for line in having if playbook_of(line) == line or playbook_of(line) not in having]
    if len(having) == 1:
        return having[0]
    if having:
        raise FatalError(f"several playbooks have an entry {entry_id}: {', '.join(having)}; add --playbook")
    raise FatalError(
        f"no playbook has an entry {entry_id}; if it was removed, name its playbook with --playbook"
    )


def as_document(origins: Lineage) -> dict[str, Any]:
    """Return the stable shape of ``why --json``."""
    return {
        "playbook": origins.playbook,
        "version": origins.version,
        "live": origins.is_live,
        "entry": origins.entry.model_dump(mode="json"),
        "changes": [
            {
                "playbook": version.name,
                "version": version.version,
                "kind": change.kind,
                "detail": change.detail,
                "origin": version.origin,
                "batch_sequence": version.batch_sequence if version.origin == "batch" else None,
                "at_ms": version.created_at_ms,
            }
            for version, change in origins.changes
        ],
        "reflections": [_source(source) for source in origins.sources],
    }


def _source(source: Source) -> dict[str, Any]:
    reflection, trace, taught_by = source.reflection, source.trace, source.taught_by
    return {
        "reflection_id": source.reflection_id,
        "playbook": source.line,
        "batch_sequence": source.sequence,
        "source": taught_by and {"name": taught_by.name, "proven": taught_by.proven},
        "reflection": reflection and reflection.model_dump(mode="json"),
        "trace": trace and trace.model_dump(mode="json"),
    }


def lines(origins: Lineage) -> Iterator[Text]:
    """Yield the lineage as text: the entry, its changes, the reflections behind it."""
    entry = origins.entry
    content = entry.content.replace("\n", "\n  ")  # only Combee's own lines begin at the margin
    yield Text(printable(f"[{entry.id}] {content}"), style="bold")
    state = f"in version {origins.version}" if origins.is_live else f"left after version {origins.version}"
    state += "" if entry.is_active else f", only {entry.state}"
    state += ", by hand" if entry.by_hand else ""
    counts = f"helpful {entry.helpful}, harmful {entry.harmful}, {entry.evidence_count} reflections"
    yield Text(printable(f"{origins.playbook}, {entry.section}; {state}; {counts}\n"))
    for version, change in origins.changes:
        of_line = "" if version.name == origins.playbook else f" of {version.name}"
        made = f"{origin_text(version)}, {moment(version.created_at_ms)}"
        title = f"version {version.version}{of_line} ({made}): {change.kind}"
        yield Text(printable(f"{title} {shortened(change.detail, MAX_TEXT)}".rstrip()))
    for source in origins.sources[-MAX_SOURCES:]:
        yield from _source_lines(source, "" if source.line == origins.playbook else f" of {source.line}")
    hidden = len(origins.sources) - MAX_SOURCES
    if hidden > 0:
        yield Text(f"\n{hidden} earlier reflections: --json lists them all", style="dim")


def _source_lines(source: Source, of_line: str) -> Iterator[Text]:
    reflection, trace = source.reflection, source.trace
    batch = f" (batch {source.sequence}{of_line})" if source.sequence else ""
    by = f", source {source_text(source.taught_by)}" if source.taught_by else ""
    yield Text(printable(f"\nreflection {name_text(source.reflection_id)}{batch}{by}"), style="cyan")
    if reflection is None:
        yield Text("  no longer in the log, or given by hand", style="dim")
        return
    yield Text(printable(f"  {shortened(reflection.key_insight or reflection.reasoning, MAX_TEXT)}"))
    if trace is not None:
        yield Text(
            printable(f"  from run {name_text(trace.trace_id)} {shortened(trace.agent, MAX_TEXT)}".rstrip()),
            style="dim",
        )
        parts = (("task", trace.task), ("answer", trace.answer), ("feedback", trace.feedback))
        yield from (
            Text(printable(f"    {name}: {shortened(text, MAX_TEXT)}")) for name, text in parts if text
        )
    elif reflection.trace_id:
        yield Text(
            printable(f"  from run {name_text(reflection.trace_id)}, which is not, or no longer, in the log"),
            style="dim",
        )
