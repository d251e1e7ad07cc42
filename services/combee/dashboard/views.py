"""What the pages show, worked out from a live picture; pure, so that it is tested without a browser."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from combee.core.live.values import LiveBatch, LiveNode, LivePlaybook, Snapshot, Stage
from combee.core.redact import redacted
from combee.dashboard.wording import moment, percent

KINDS = {
    "waiting": ("hourglass_empty", "waits for its children"),
    "ready": ("more_horiz", "asks the model, or is about to"),
    "done": ("check", "done"),
    "merged": ("call_merge", "merged by code: its call failed for good"),
    "failed": ("close", "failed: nothing of it survives"),
}
"""What a node may be: an icon, so that colour is never all there is, and words."""
SPOILT = {"merged", "failed"}
Row = dict[str, str | int | float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One topic of the flow."""

    name: str
    rate: str
    offsets: str
    lag: str
    state: str
    """behind, idle, or empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One node of a tree: an icon, a kind for its colour, and words for whoever cannot see it."""

    node_id: str
    icon: str
    kind: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level of a tree; the children of one node stand together."""

    name: str
    done: str
    families: tuple[tuple[Chip, ...], ...]


def cards(stages: Iterable[Stage]) -> tuple[Card, ...]:
    """Return the flow, topic by topic."""
    return tuple(_card(one) for one in stages)


def _card(stage: Stage) -> Card:
    behind = bool(stage.lag)
    waited = f", oldest {stage.lag_s:.0f} s" if behind and stage.lag_s else ""
    lag = "" if stage.lag is None else f"{stage.lag:,} open{waited}" if behind else "all done"
    return Card(
        name=stage.name,
        rate=f"{stage.rate_per_s:,.1f} /s",
        offsets=f"{stage.offsets:,} offsets",
        lag=lag,
        state="behind" if behind else "" if stage.rate_per_s else "idle",
    )


def share_full(playbook: LivePlaybook) -> float:
    """Return how full a window is, 0 to 1."""
    return min(1.0, playbook.waiting / max(1, playbook.batch_size))


def current_batch(batches: Sequence[LiveBatch]) -> LiveBatch | None:
    """Return the oldest batch in flight; where none is, the newest."""
    flying = [one for one in batches if one.version is None]
    return flying[-1] if flying else next(iter(batches), None)


def headline(batch: LiveBatch) -> str:
    """Return what a batch is and how far."""
    done = sum(node.state == "done" for node in batch.nodes)
    so_far = f"version {batch.version}" if batch.version else f"{done} of {len(batch.nodes)} nodes done"
    why = f", closed by {batch.reason}" if batch.reason else ""
    return f"{batch.playbook} · batch {batch.sequence} · {batch.reflections} reflections{why} · {so_far}"


def levels(batch: LiveBatch) -> tuple[Level, ...]:
    """Return a tree, root first; a batch that is over counts as done whatever was read of it."""
    return tuple(_level(batch, level) for level in reversed(range(len(batch.widths))))


def _level(batch: LiveBatch, level: int) -> Level:
    is_over = batch.version is not None
    inside = [node for node in batch.nodes if node.level == level]
    families = [
        tuple(_chip(node, is_over=is_over) for node in family)
        for _, family in groupby(inside, key=lambda node: node.parent_id)
    ]
    done = len(inside) if is_over else sum(node.state == "done" for node in inside)
    suffix = " · root" if level == len(batch.widths) - 1 else "" if level else " · groups"
    return Level(name=f"level {level}{suffix}", done=f"{done} of {len(inside)}", families=tuple(families))


def _chip(node: LiveNode, *, is_over: bool) -> Chip:
    kind = node.status if node.status in SPOILT else "done" if is_over else node.state
    icon, words = KINDS[kind]
    told = f"node {node.index} of level {node.level}: {words}"
    if node.state == "done":
        told += f"; {node.operations} operations, {node.tokens_in + node.tokens_out:,} tokens below it"
    if node.reason:
        told += f"; {redacted(node.reason)}"
    return Chip(node_id=node.node_id, icon=icon, kind=kind, title=told)


def playbook_rows(playbooks: Iterable[LivePlaybook]) -> list[Row]:
    """Return a table of playbooks."""
    return [
        {
            "name": one.name,
            "version": one.version,
            "entries": one.entries,
            "window": f"{one.waiting} of {one.batch_size}",
            "retention": percent(one.retention),
            "tokens": f"{one.spend_tokens:,}",
            "cost": f"{one.spend_cost:,.2f}",
            "changed": moment(one.changed_at_ms),
        }
        for one in playbooks
    ]


def batch_rows(batches: Iterable[LiveBatch]) -> list[Row]:
    """Return a table of batches."""
    return [
        {
            "name": f"{one.playbook} · {one.sequence}",
            "id": one.batch_id,
            "reflections": one.reflections,
            "tree": " → ".join(map(str, one.widths)),
            "closed": moment(one.closed_at_ms),
            "took": f"{(one.done_at_ms - one.closed_at_ms) / 1000:.1f} s" if one.done_at_ms else "–",
            "version": one.version if one.version is not None else "in flight",
        }
        for one in batches
    ]


def version_rows(snapshot: Snapshot, most: int = 8) -> list[Row]:
    """Return the newest versions of all playbooks."""
    found = [(one, book.name) for book in snapshot.playbooks for one in book.versions]
    newest = sorted(found, key=lambda pair: pair[0].at_ms, reverse=True)[:most]
    return [
        {
            "id": f"{name} {one.version}",
            "name": name,
            "version": one.version,
            "from": one.origin,
            "entries": one.entries,
            "reflections": one.reflections or "–",
            "retention": percent(one.retention),
            "took": f"{one.seconds:.1f} s" if one.seconds else "–",
            "at": moment(one.at_ms),
        }
        for one, name in newest
    ]


def dead_rows(snapshot: Snapshot) -> list[Row]:
    """Return the newest dead letters; secrets are not shown."""
    return [
        {
            "id": f"{one.origin} {number}",
            "at": moment(one.at_ms),
            "service": one.service,
            "origin": one.origin,
            "record": one.record_id or "–",
            "playbook": one.playbook or "–",
            "reason": redacted(one.reason),
        }
        for number, one in enumerate(snapshot.dead_letters_recent)
    ]
