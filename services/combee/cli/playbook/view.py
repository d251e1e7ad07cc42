"""Playbooks for people and for programs: rows, changes, one version in full."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from combee.cli.console import clean, output
from combee.clock import moment
from combee.core.formats.render import section_order
from combee.core.playbook import retention
from combee.core.playbook.comparison import TOLD
from combee.core.playbook.retention import percent
from combee_schemas.base import Usage
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
    "delete": "-",
}
LONG = 100


def list_row(playbook: Playbook, labels: dict[str, int]) -> dict[str, Any]:
    """Return one line of ``playbook list --json``."""
    return {
        "name": playbook.name,
        "version": playbook.version,
        "entries": len(playbook.entries),
        "batch_sequence": playbook.batch_sequence,
        "origin": playbook.origin,
        "labels": labels,
        "created_at_ms": playbook.created_at_ms,
    }


def version_row(playbook: Playbook) -> dict[str, Any]:
    """Return one version without its entries: where it came from, what it changed, what it cost."""
    took = playbook.created_at_ms - playbook.closed_at_ms
    return {
        "version": playbook.version,
        "origin": playbook.origin,
        "issued_by": playbook.issued_by,
        "batch_sequence": playbook.batch_sequence if playbook.origin == "batch" else None,
        "batch_id": playbook.batch_id if playbook.origin == "batch" else None,
        "base_version": playbook.base_version,
        "staleness": playbook.staleness,
        "reflections": playbook.reflections,
        "entries": len(playbook.entries),
        "changes": dict(Counter(change.kind for change in playbook.changes)),
        "model_calls": playbook.usage.calls,
        "planned_calls": sum(playbook.widths),
        "skips": playbook.usage.skips,
        "splits": playbook.usage.splits,
        "re_asks": playbook.usage.re_asks,
        "retention": list(playbook.retention),
        "carried": playbook.carried,
        "tokens": {"in": playbook.usage.tokens_in, "out": playbook.usage.tokens_out},
        "degraded": playbook.degraded,
        "closed_at_ms": playbook.closed_at_ms,
        "created_at_ms": playbook.created_at_ms,
        "seconds": round(took / 1000, 3) if playbook.closed_at_ms else None,
    }


def list_table(rows: list[dict[str, Any]]) -> Table:
    """Return the playbooks there are."""
    table = Table("playbook", "version", "entries", "batches", "labels", "changed (UTC)", box=None)
    for row in rows:
        labels = ", ".join(f"{label}→{version}" for label, version in row["labels"].items())
        counts = (str(row[name]) for name in ("version", "entries", "batch_sequence"))
        table.add_row(row["name"], *counts, labels, moment(row["created_at_ms"]))
    return table


def history_table(rows: list[dict[str, Any]]) -> Table:
    """Return the versions of one playbook, oldest first."""
    made = ("version", "origin", "batch", "reflections", "entries", "changes")
    table = Table(*made, "retention", "calls/planned", "tokens", "time (UTC)", "seconds", "by", box=None)
    for row in rows:
        table.add_row(
            str(row["version"]),
            row["origin"] + (" (degraded)" if row["degraded"] else ""),
            str(row["batch_sequence"] or ""),
            str(row["reflections"] or ""),
            str(row["entries"]),
            changes_text(row["changes"]),
            percent(row["retention"][-1] if row["retention"] else None),
            f"{row['model_calls']}/{row['planned_calls']}" if row["planned_calls"] else "",
            str(sum(row["tokens"].values())),
            moment(row["created_at_ms"]),
            "" if row["seconds"] is None else f"{row['seconds']:.2f}",
            Text(clean(row["issued_by"])),
        )
    return table


def changes_text(counts: Mapping[str, int]) -> str:
    """Return how many changes of each kind a version made."""
    return ", ".join(f"{count} {TOLD.get(kind, kind)}" for kind, count in counts.items()) or "no change"


def version_title(playbook: Playbook) -> str:
    """Return one version in one line."""
    from_batch = f"batch {playbook.batch_sequence} of {playbook.reflections} reflections"
    if playbook.staleness:
        from_batch += f", made on version {playbook.base_version}, {playbook.staleness} batches earlier"
    by = f" by {clean(playbook.issued_by)}" if playbook.issued_by else ""
    origin = from_batch if playbook.origin == "batch" else playbook.origin + by
    degraded = ", degraded" if playbook.degraded else ""
    made = moment(playbook.created_at_ms)
    when = f", {made} UTC" if made else ""
    return (
        f"{playbook.name} version {playbook.version}: {len(playbook.entries)} entries;"
        f" from {origin}{degraded}{when}; {changes_text(Counter(change.kind for change in playbook.changes))}"
    )


def tell_version(playbook: Playbook, *, changed: bool) -> None:
    """Say which version a command made, or that it changed nothing."""
    output().print(("" if changed else "unchanged: ") + version_title(playbook), markup=False, soft_wrap=True)


def calls_text(used: Usage, planned: int) -> str:
    """Return planned model calls beside those made, and what makes the difference."""
    why = {"skipped": used.skips, "split": used.splits, "asked again": used.re_asks}
    told = ", ".join(f"{count} {name}" for name, count in why.items() if count)
    return f"model calls: {used.calls} made, {planned} planned{f' ({told})' if told else ''}"


def _audit(playbook: Playbook) -> Iterator[Text]:
    """Yield what became of the batch behind a version: what was retained, and at how many calls."""
    if playbook.retention:
        *levels, last = map(percent, playbook.retention)
        path = " → ".join(f"{share} after level {level}" for level, share in enumerate(levels))
        carried = f"; {playbook.carried} proposals carried" if playbook.carried else ""
        yield Text(f"retention: {path} → {last} in the playbook{carried}")
    if told := retention.warning(playbook.retention_recent):
        yield Text(f"warning: {told}", style="yellow")
    if playbook.widths:
        yield Text(calls_text(playbook.usage, sum(playbook.widths)))


def diff_lines(playbook: Playbook) -> Iterator[str]:
    """Yield what a version changed, a line each."""
    contents = {entry.id: entry.content for entry in playbook.entries}
    for change in playbook.changes:
        yield _change_line(change, contents)


def _change_line(change: Change, contents: dict[str, str]) -> str:
    sign = SIGNS.get(change.kind, "!")
    told = contents.get(change.entry_id, "") if sign in "+~" else change.detail
    text = " ".join(clean(told).split())
    short = text if len(text) <= LONG else text[: LONG - 1] + "…"
    return f"  {sign} {TOLD.get(change.kind, change.kind)} {change.entry_id} {short}".rstrip()


def _component(entry: Entry) -> Iterator[Text]:
    """Yield a component's head and its text, line by line as it is."""
    rests = f"{entry.id}, {entry.evidence_count} reflections, written in version {entry.updated_version}"
    yield Text(f"\n{clean(entry.section)} ({clean(rests)})", style="bold cyan")
    yield Text(clean(entry.content))


def full_view(playbook: Playbook) -> RenderableType:
    """Return one version with its entries by section and their counters."""
    parts: list[RenderableType] = [Text(version_title(playbook), style="bold"), *_audit(playbook)]
    for section in section_order(playbook.sections, playbook.entries):
        entries = [entry for entry in playbook.entries if entry.section == section]
        if not entries:
            continue
        if playbook.holds == "components":
            parts += [component for entry in entries for component in _component(entry)]
            continue
        table = Table("id", "helpful", "harmful", "evidence", "content", box=None)
        for entry in entries:
            counts = (entry.helpful, entry.harmful, entry.evidence_count)
            table.add_row(Text(clean(entry.id)), *map(str, counts), Text(clean(entry.content)))
        parts += [Text(f"\n{clean(section)} ({len(entries)})", style="bold cyan"), table]
    return Group(*parts)
