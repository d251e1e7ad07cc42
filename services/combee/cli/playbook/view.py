"""Playbooks as tables, text and JSON."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from combee.adapters.clock import moment
from combee.cli.shared.console import output, print_json, shortened
from combee.core.evaluation.outcomes.report import OutcomesReport, figures_text
from combee.core.gate.canary_verdict import canary_text
from combee.core.names.sources import sources_text
from combee.core.playbook import retention
from combee.core.playbook.budget import budget_text
from combee.core.playbook.comparison import CHANGE_WORDS
from combee.core.playbook.retention import percent
from combee.core.playbook.sections import section_order
from combee.core.playbook.shown import counts, counts_text, shown
from combee.core.playbook.trust import proven_sources
from combee.core.text.flags import flags
from combee.core.text.forms import printable
from combee.log.reports.audit import VersionDetails, audit_texts, changes_text, version_text
from combee.log.reports.branch import branch_text
from combee.log.reports.status import ListedReport
from combee_schemas.playbook import Change, Entry, Playbook

SIGNS = {
    "add": "+",
    "import": "+",
    "update": "~",
    "duplicate": "=",
    "echo": "=",
    "merge": "-",
    "remove": "-",
    "evict": "-",
    "promote": "+",
    "expire": "-",
    "delete": "-",
}
MAX_TEXT = 100
VERSIONS_TOLD, ENTRIES_TOLD = 5, 10


def list_table(rows: list[ListedReport]) -> Table:
    """Return the table of all playbooks."""
    forked = ["forked from"] if any(row.branch for row in rows) else []
    table = Table("playbook", *forked, "version", "entries", "batches", "labels", "changed (UTC)", box=None)
    for row in rows:
        labels = ", ".join(f"{label}→{version}" for label, version in row.labels.items())
        table.add_row(
            row.name,
            *(branch_text(row.branch) for _ in forked),
            *(str(row.version), row.entries_text, str(row.batch_sequence), labels),
            moment(row.created_at_ms),
        )
    return table


def history_table(rows: list[VersionDetails]) -> Table:
    """Return the versions of one playbook, oldest first."""
    made = ("version", "made by", "batch", "reflections", "entries", "changes")
    taught = ["sources"] if any(sources_text(row.sources) for row in rows) else []
    table = Table(
        *made, *taught, "retention", "calls/planned", "tokens", "time (UTC)", "seconds", "by", box=None
    )
    for row in rows:
        table.add_row(
            str(row.version),
            row.made_by + (" (degraded)" if row.degraded else ""),
            str(row.batch_sequence or ""),
            str(row.reflections or ""),
            counts_text(row.entries, row.proposed),
            changes_text(row.changes),
            *(Text(printable(sources_text(row.sources))) for _ in taught),
            percent(row.retention),
            f"{row.model_calls}/{row.planned_calls}" if row.planned_calls else "",
            str(row.tokens["in"] + row.tokens["out"]),
            moment(row.created_at_ms),
            "" if row.seconds is None else f"{row.seconds:.2f}",
            Text(printable(row.issued_by)),
        )
    return table


def version_title(playbook: Playbook) -> str:
    """Return one version in one line."""
    return printable(f"{playbook.name} version {playbook.version}: {version_text(playbook)}")


def print_version(playbook: Playbook, *, changed: bool) -> None:
    """Print the version that a command made, or that it changed nothing."""
    output().print(("" if changed else "unchanged: ") + version_title(playbook), markup=False, soft_wrap=True)


def print_change(
    made: Playbook,
    more: Mapping[str, Any] | None = None,
    *,
    changed: bool,
    as_json: bool,
    with_diff: bool = False,
) -> None:
    """Print a command's changes, or that it changed nothing; JSON also has ``more``."""
    if as_json:
        row = {"name": made.name, "version": made.version, "entries": len(made.entries), "changed": changed}
        print_json({**row, **(more or {})})
        return
    print_version(made, changed=changed)
    for line in diff_lines(made) if with_diff and changed else ():
        output().print(line, markup=False, soft_wrap=True)


def _audit(playbook: Playbook) -> Iterator[Text]:
    """Yield the audit of the batch behind a version."""
    for warning in retention.warnings(playbook).values():
        yield Text(f"warning: {warning}", style="yellow")
    for text in audit_texts(playbook.batch) if playbook.batch else ():
        yield Text(printable(text))


def diff_lines(playbook: Playbook) -> Iterator[str]:
    """Yield a version's changes, one line each."""
    contents = {entry.id: entry.content for entry in playbook.entries}
    for change in playbook.changes:
        yield _change_line(change, contents)


def _change_line(change: Change, contents: dict[str, str]) -> str:
    sign = SIGNS.get(change.kind, "!")
    # A fork's "import" is about no entry: its detail names the version that it began with.
    wording = contents.get(change.entry_id, change.detail) if sign in "+~" else change.detail
    parts = (sign, CHANGE_WORDS.get(change.kind, change.kind), change.entry_id, shortened(wording, MAX_TEXT))
    return "  " + " ".join(part for part in parts if part)


def _component(entry: Entry) -> Iterator[Text]:
    """Yield a component's heading and its text."""
    facts = f"{entry.id}, {entry.evidence_count} reflections, written in version {entry.updated_version}"
    yield Text(f"\n{printable(entry.section)} ({printable(facts)})", style="bold cyan")
    yield Text(printable(entry.content))


def _content(entry: Entry) -> Text:
    waits = [] if entry.is_active else [entry.state, f"{len(entry.support)} support it"]
    looks = [f"looks like {flag}" for flag in sorted(flags(entry.content))]
    told = ", ".join([*(["by hand"] if entry.by_hand else []), *waits, *looks])
    return Text.assemble((f"({told}) " if told else "", "yellow"), printable(entry.content))


def _hidden(playbook: Playbook) -> Iterator[Text]:
    """Yield the number of entries that agents are not shown, and the option that lists them."""
    if count := counts(playbook)["proposed"]:
        yield Text(f"proposed: {count} entries that agents are not shown yet; --all lists them", style="dim")


def outcome_lines(outcomes: OutcomesReport, playbook: Playbook) -> Iterator[Text]:
    """Yield outcomes of runs by version, the newest last, and by entry of this version, for runs that used it."""
    if outcomes.canary:
        yield Text(f"\n{canary_text(outcomes.canary)}")
    if not outcomes.versions:
        return
    yield Text("\nDOES IT HELP? (95 % intervals)", style="bold cyan")
    for version in outcomes.versions[-VERSIONS_TOLD:]:
        mark = " <" if version.version == playbook.version else ""
        shown_to_runs = f"version {version.version}" if version.version else "no playbook"
        yield Text(f"  {shown_to_runs}: {printable(figures_text(version))}{mark}")
    there = {entry.id for entry in playbook.entries}
    used = [entry for entry in outcomes.entries if entry.entry_id in there and entry.used.runs]
    for entry in sorted(used, key=lambda entry: -entry.used.runs)[:ENTRIES_TOLD]:
        yield Text(f"  {entry.entry_id}, used: {printable(figures_text(entry.used))}; shown to {entry.shown}")


def full_view(playbook: Playbook, *, everything: bool = False, budget_tokens: int = 0) -> RenderableType:
    """Return one version with its entries by section and their counters.

    ``everything`` includes proposed entries; ``budget_tokens`` is the configured token budget.
    """
    parts: list[RenderableType] = [Text(version_title(playbook), style="bold"), *_audit(playbook)]
    if budget := budget_text(playbook, budget_tokens):
        parts.append(Text(budget))
    if not everything:
        parts += _hidden(playbook)
        playbook = shown(playbook)
    for section in section_order(playbook.sections, playbook.entries):
        entries = [entry for entry in playbook.entries if entry.section == section]
        if not entries:
            continue
        if playbook.holds == "components":
            parts += [component for entry in entries for component in _component(entry)]
            continue
        taught = ["sources"] if proven_sources(playbook) and any(entry.sources for entry in entries) else []
        table = Table("id", "helpful", "harmful", "evidence", *taught, "content", box=None)
        for entry in entries:
            counts = (entry.helpful, entry.harmful, entry.evidence_count)
            sources = (Text(printable(", ".join(entry.sources))) for _ in taught)
            table.add_row(Text(printable(entry.id)), *map(str, counts), *sources, _content(entry))
        parts += [Text(f"\n{printable(section)} ({len(entries)})", style="bold cyan"), table]
    return Group(*parts)
