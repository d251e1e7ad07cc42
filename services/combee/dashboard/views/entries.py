"""The entries of playbooks as lists: one version with its changes, or the results of a search; pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from combee.core.names.sources import UNPROVEN
from combee.core.playbook.comparison import Comparison
from combee.core.playbook.sections import section_order
from combee.core.playbook.trust import proven_sources
from combee.core.text.flags import flags
from combee.dashboard.views.rows import Row
from combee.dashboard.views.wording import Matches, address, matching, title
from combee_schemas.playbook import Entry, Playbook

SIGNS = {"added": "+ ", "removed": "− ", "changed": "+ "}
"""Signs before changed texts, so that colour is not the only mark."""


@dataclass(slots=True)
class EntryList:
    """Rows from top to bottom: the headings of sections, and entries."""

    rows: list[Row] = field(default_factory=list)
    sections: dict[str, int] = field(default_factory=dict)
    """The row at which each section begins."""
    shown: int = 0
    """Number of entries among the rows."""

    def at(self, entry_id: str) -> int | None:
        """Return the row of an entry."""
        return next((at for at, row in enumerate(self.rows) if row["id"] == entry_id), None)


def entry_list(
    playbook: Playbook, difference: Comparison, text: str = "", *, only_changed: bool
) -> EntryList:
    """Return a version's entries and removed ones by section, filtered by text and, on request, to changed ones."""
    matches, listed = matching(text), EntryList()
    kinds = {addition.id: "added" for addition in difference.added} | {
        change.id: "changed" for change in difference.changed
    }
    before = {change.id: change.before for change in difference.changed}
    conflicts = {conflict.id: conflict.why for conflict in difference.conflicts}
    rows = [
        _row(playbook, entry, kinds.get(entry.id, ""), before.get(entry.id, ""), conflicts.get(entry.id, ""))
        for entry in playbook.entries
        if kinds.get(entry.id) or entry.id in conflicts or not only_changed
    ]
    rows += [
        _base(playbook, removed.id, removed.section, removed.content, "removed")
        | {"about": f"[{removed.id}] {removed.word}"}
        for removed in difference.removed
    ]
    rows = [row for row in rows if matches(f"{row['words']} {row['id']} {row['section']}".casefold())]
    for section in section_order(difference.sections, playbook.entries):
        inside = [row for row in rows if row["section"] == section]
        if inside:
            listed.sections[section] = len(listed.rows)
            listed.rows.append(
                {"id": f"section {section}", "kind": "section", "words": title(section), "count": len(inside)}
            )
            listed.rows += inside
            listed.shown += len(inside)
    return listed


def _base(playbook: Playbook, entry_id: str, section: str, words: str, kind: str) -> Row:
    return {
        "id": entry_id,
        "section": section,
        "words": words,
        "sign": SIGNS.get(kind, ""),
        "kind": kind,
        "before": "",
        "state": "",
        "evidence": None,
        "href": address(playbook.name, playbook.version, entry_id).removeprefix("/"),
    }


def _row(playbook: Playbook, entry: Entry, kind: str, before: str, conflict: str = "") -> Row:
    about = f"[{entry.id}] helpful {entry.helpful}, harmful {entry.harmful}"
    # Where nobody proves who they are all are one source.
    proven = proven_sources(playbook) or any(name != UNPROVEN for name in entry.sources)
    about += f", from {', '.join(entry.sources)}" if entry.sources and proven else ""
    about += "".join(f", looks like {flag}" for flag in sorted(flags(entry.content)))
    about += f", {kind}" if kind else ""
    return _base(playbook, entry.id, entry.section, entry.content, kind) | {
        "before": before,
        "state": "" if entry.is_active else entry.state,
        "about": f"{about}, in conflict: {conflict}" if conflict else about,
        "evidence": entry.evidence_count,
    }


# ---- search


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Results of a search."""

    playbooks: tuple[str, ...] = ()
    """First playbooks whose names match."""
    rows: tuple[Row, ...] = ()
    """First matching entries, by playbook."""
    total: int = 0
    """Number of matching entries."""


def search(playbooks: Iterable[Playbook], text: str, most: int) -> SearchResult:
    """Return the playbooks and entries with all words of ``text``, none for an empty text."""
    if not text.split():
        return SearchResult()
    matches = matching(text)
    names: list[str] = []
    rows: list[Row] = []
    total = 0
    for playbook in playbooks:
        if matches(playbook.name.casefold()):
            names.append(playbook.name)
        hits = list(_hits(playbook, matches))
        total += len(hits)
        room = hits[: max(0, most - len(rows))]
        if room:
            href = address(playbook.name).removeprefix("/")
            heading = {"kind": "section", "words": playbook.name, "count": len(hits), "href": href}
            rows += [heading | {"id": f"playbook {playbook.name}"}, *room]
    return SearchResult(tuple(names[:most]), tuple(rows), total)


def _hits(playbook: Playbook, matches: Matches) -> Iterator[Row]:
    for entry in playbook.entries:
        if matches(f"{entry.content} {entry.id} {entry.section} {playbook.name}".casefold()):
            row = _row(playbook, entry, "", "")
            yield row | {"about": f"{row['about']} · {title(entry.section)}", "playbook": playbook.name}
