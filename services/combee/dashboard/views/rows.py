"""Contents of the pages, computed from a live snapshot; pure, so that they are tested without a browser."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from combee.core.log.live.values import LiveBatch, LiveNode, LivePlaybook, Snapshot, Stage
from combee.core.playbook.shown import counts_text
from combee.core.playbook.side_by_side import Line, in_order
from combee.core.playbook.versions import empty
from combee.core.text.redact import redacted
from combee.dashboard.views.wording import address, matching, moment, percent
from combee.log.reports.branch import branch_text
from combee.log.reports.status import (
    LineReport,
    deployment_report,
    learned_report,
    line_today,
    newest_versions,
    progress_text,
)
from combee.log.reports.waiting import Waiting
from combee.process.settings.loading import Settings, in_force
from combee_schemas.base import branch_in, playbook_of
from combee_schemas.playbook import Playbook

KINDS = {
    "waiting": ("hourglass_empty", "waits for its children"),
    "ready": ("more_horiz", "calls the model, or is about to"),
    "done": ("check", "done"),
    "left_out": ("skip_next", "left out: late, and other nodes cover all its input"),
    "merged": ("swap_horiz", "merged by code: its call failed for good"),
    "failed": ("close", "failed: it has no result"),
}
"""Icon and text of each kind of node, so that colour is not the only mark."""
SPOILT = {"merged", "failed"}
Row = dict[str, Any]
MAX_PLAYBOOKS = 500
"""Maximum number of playbooks in a table; a search finds the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One topic of the flow."""

    name: str
    rate: str
    offsets: str
    lag: str
    state: str
    """behind, idle, or empty."""


def card(stage: Stage) -> Card:
    """Return one topic as text."""
    behind = bool(stage.lag)
    waited = f", oldest {stage.lag_s:.0f} s" if behind and stage.lag_s else ""
    lag = "" if stage.lag is None else f"{stage.lag:,} open{waited}" if behind else "all done"
    return Card(
        name=stage.name,
        rate=f"{stage.rate_per_s:,.1f} /s",
        offsets=f"{stage.offsets:,}",
        lag=lag,
        state="behind" if behind else "" if stage.rate_per_s else "idle",
    )


def stage_rows(stages: Iterable[Stage]) -> list[Row]:
    """Return a table of topics in flow order."""
    return [
        {"name": stage.name, "rate": stage.rate, "offsets": stage.offsets, "lag": stage.lag or "–"}
        for stage in map(card, stages)
    ]


def share_full(playbook: LivePlaybook) -> float:
    """Return the filled share of a window, 0 to 1."""
    return min(1.0, playbook.waiting / max(1, playbook.batch_size))


def headline(batch: LiveBatch) -> str:
    """Return a batch's title and progress."""
    return f"{batch.playbook} · batch {batch.sequence} · {batch.about} · {progress_text(batch)}"


def kind_of(node: LiveNode, *, is_over: bool) -> str:
    """Return a node's kind, one of ``KINDS``; in a finished batch every node is done, whatever was read of it."""
    if node.status in SPOILT:
        return str(node.status)
    return "done" if is_over and not node.is_settled else node.state


def node_words(node: LiveNode, *, is_over: bool) -> str:
    """Return a sentence about a node's state."""
    return f"node {node.index} of level {node.level}: {KINDS[kind_of(node, is_over=is_over)][1]}"


def node_rows(batch: LiveBatch) -> list[Row]:
    """Return a table of a batch's nodes, root first."""
    is_over = batch.version is not None
    top = len(batch.widths) - 1
    return [
        {
            "id": node.node_id,
            "node": f"level {node.level}{' · root' if node.level == top else ''} · {node.index}",
            "kind": (kind := kind_of(node, is_over=is_over)),
            "icon": KINDS[kind][0],
            "state": KINDS[kind][1],
            "operations": node.operations if node.state == "done" else "–",
            "tokens": f"{node.tokens_in + node.tokens_out:,}" if node.state == "done" else "–",
            "reason": redacted(node.reason) or "–",
        }
        for node in sorted(batch.nodes, key=lambda node: (-node.level, node.index))
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number of the whole deployment, and the page that says more."""

    number: str
    what: str
    address: str
    state: str = ""
    """bad if it needs attention."""


def figures(now: Snapshot, playbooks: Iterable[Playbook]) -> list[Figure]:
    """Return the deployment's figures."""
    counted = deployment_report(now, playbooks)
    shown = (
        (counted.playbooks, "playbooks", "/playbooks"),
        (counted.lessons, "lessons", "/search"),
        (counted.waiting, "reflections waiting", "/flow"),
        (counted.in_flight, "batches in progress", "/batches"),
    )
    letters = Figure(
        number=f"{counted.dead_letters:,}",
        what="dead letters",
        address="/dead-letters",
        state="bad" if counted.dead_letters else "",
    )
    return [*(Figure(number=f"{number:,}", what=what, address=at) for number, what, at in shown), letters]


def waiting_rows(found: Iterable[Waiting]) -> list[Row]:
    """Return a table of what waits for a person, with the page that decides on it."""
    return [
        {
            "what": one.what,
            "since": moment(one.since_ms),
            "more": one.more,
            "href": address(one.playbook) if one.playbook else "/dead-letters",
        }
        for one in found
    ]


def playbook_rows(
    now: Snapshot,
    stored: Mapping[str, Playbook],
    labels: Mapping[str, str],
    text: str = "",
    most: int = MAX_PLAYBOOKS,
) -> tuple[list[Row], int]:
    """Return a table of the playbooks whose names have all words of a text, and their total number.

    Recently changed playbooks, which the snapshot has, come first. The others show only their newest version.
    """
    matches = matching(text)
    live = {playbook.name: playbook for playbook in now.playbooks}
    others = in_order(name for name in stored if name not in live)
    names = [name for name in (*live, *others) if matches(name.casefold())]
    rows = [
        _playbook_row(stored.get(name) or empty(name), stored, live.get(name), now.at_ms)
        | {"labels": labels.get(name, "–")}
        for name in names[:most]
    ]
    return rows, len(names)


def warnings_text(playbooks: Iterable[LivePlaybook]) -> str:
    """Return the warnings about the last batches of playbooks, one a line."""
    return "\n".join(f"warning: {book.name}: {text}" for book in playbooks for text in book.warnings.values())


def _line_cells(report: LineReport) -> Row:
    return {
        "name": report.name,
        "forked": branch_text(report.branch) or "–",
        "version": report.version,
        "entries": report.entries_text,
    }


def line_rows(
    lines: Iterable[Line], live: Iterable[LivePlaybook], stored: Mapping[str, Playbook]
) -> list[Row]:
    """Return a table of a playbook and its branches; reflections and tokens count from the fork."""
    seen = {playbook.name: playbook for playbook in live}
    return [
        {
            **_line_cells(report),
            "versions": report.versions,
            "reflections": report.reflections,
            "calls": report.model_calls,
            "tokens": f"{report.tokens['in'] + report.tokens['out']:,}",
            "retention": percent(report.retention),
            "omitted": percent(report.omitted),
            "today": f"{now.spend_tokens if (now := seen.get(report.name)) else 0:,}",
            "window": now.window if now else "–",
            "paused": (now.paused if now else "") or "–",
        }
        for report in (learned_report(line, stored) for line in lines)
    ]


def _playbook_row(
    line: Playbook, stored: Mapping[str, Playbook], live: LivePlaybook | None, now_ms: int
) -> Row:
    report = line_today(line, stored, now_ms)
    return {
        **_line_cells(report),
        "of": playbook_of(line.name),
        "branch": branch_in(line.name),
        "retention": percent(report.retention),
        "omitted": percent(report.omitted),
        "prompt": report.prompt_tokens,
        "window": live.window if live else "–",
        "tokens": f"{report.today.tokens:,}",
        "cost": f"{report.today.cost:,.2f}",
        "changed": moment(live.changed_at_ms if live else line.created_at_ms),
    }


def batch_rows(batches: Iterable[LiveBatch]) -> list[Row]:
    """Return a table of batches."""
    return [
        {
            "name": f"{batch.playbook} · {batch.sequence}",
            "id": batch.batch_id,
            "reflections": batch.reflections,
            "tree": " → ".join(map(str, batch.widths)),
            "closed": moment(batch.closed_at_ms),
            "took": f"{(batch.done_at_ms - batch.closed_at_ms) / 1000:.1f} s" if batch.done_at_ms else "–",
            "version": batch.version if batch.version is not None else "in flight",
        }
        for batch in batches
    ]


def version_rows(snapshot: Snapshot, most: int = 8) -> list[Row]:
    """Return the newest versions of all playbooks."""
    return [
        {
            "id": f"{name} {version.version}",
            "name": name,
            "version": version.version,
            "from": version.origin,
            "entries": counts_text(version.entries, version.proposed),
            "reflections": version.reflections or "–",
            "retention": percent(version.retention),
            "took": f"{version.seconds:.1f} s" if version.seconds else "–",
            "at": moment(version.at_ms),
        }
        for name, version in newest_versions(snapshot.playbooks, most)[:most]
    ]


def dead_rows(snapshot: Snapshot) -> list[Row]:
    """Return the newest dead letters; secrets are not shown."""
    return [
        {
            "id": letter.id or f"{letter.origin} {number}",
            "is_open": bool(letter.id) and not letter.decision,
            "state": letter.decision or "open",
            "at": moment(letter.at_ms),
            "service": letter.service,
            "origin": letter.origin,
            "record": letter.record_id or "–",
            "playbook": letter.playbook or "–",
            "reason": redacted(letter.reason),
        }
        for number, letter in enumerate(snapshot.dead_letters_recent)
    ]


def setting_rows(settings: Settings, text: str = "", *, only_set: bool = False) -> list[Row]:
    """Return the settings that have all words of a text, on request only those that are no default."""
    matches = matching(text)
    return [
        {
            "name": f"COMBEE_{setting.name.upper()}",
            "value": setting.value,
            "origin": setting.origin,
            "about": setting.about,
        }
        for setting in in_force(settings)
        if not (only_set and setting.origin == "default")
        and matches(f"combee_{setting.name} {setting.value} {setting.about}".casefold())
    ]
