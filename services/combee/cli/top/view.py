"""One frame of ``combee top``: a live picture as text, tables and a tree."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from combee.adapters.clock import moment
from combee.cli.shared.console import WIDTH_OF_PIPES, shortened
from combee.core.log.live.values import (
    LiveBatch,
    LiveNode,
    LivePlaybook,
    Snapshot,
    Stage,
    current_batch,
    window_text,
)
from combee.core.playbook.retention import percent
from combee.core.playbook.shown import counts_text
from combee.core.text.forms import printable
from combee.log.reports.branch import branch_report, branch_text
from combee.log.reports.controller import why_text
from combee.log.reports.status import newest_versions, progress_text
from combee_schemas.base import branch_in, is_branch_of

BAR, SHORT_BAR = 12, 6
NARROW = 120
"""Below this many columns, tables keep what fits 80 of them."""
NAME_WIDTH = 24
"""Maximum width of a name in narrow tables; a longer name is cut at its end."""
MAX_TEXT = 60
WORDS = {"ready": "asking", "left_out": "left out"}
SIGNS = {"done": ("●", "green"), "ready": ("◐", "yellow"), "waiting": ("○", "dim"), "left_out": ("»", "dim")}
SPOILT = {"merged": "magenta", "failed": "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Maximum number of rows of each part."""

    playbooks: int = 8
    versions: int = 6
    letters: int = 6
    nodes: int = 24
    """A batch with more nodes is drawn as one line per level."""
    is_spaced: bool = True
    all_stages: bool = True
    """False omits stages without traffic."""


ROOMS = (
    Room(),
    Room(playbooks=5, versions=4, letters=3, all_stages=False),
    Room(playbooks=3, versions=3, letters=2, nodes=6, all_stages=False),
    Room(playbooks=3, versions=2, letters=1, nodes=0, is_spaced=False, all_stages=False),
    Room(playbooks=1, versions=1, letters=1, nodes=0, is_spaced=False, all_stages=False),
)
"""Row limits, from large screens to small ones."""


def fitted(snapshot: Snapshot, console: Console, *, broker: str, prefix: str) -> RenderableType:
    """Return the largest frame that the console has lines for, the smallest if there is none."""
    shown: RenderableType = ""
    for room in ROOMS:
        shown = frame(snapshot, broker=broker, prefix=prefix, width=console.width, room=room)
        if len(console.render_lines(shown)) <= console.height:
            break
    return shown


def frame(
    snapshot: Snapshot, *, broker: str, prefix: str, width: int = WIDTH_OF_PIPES, room: Room = ROOMS[0]
) -> RenderableType:
    """Return one frame."""
    narrow = width < NARROW
    letters = f"; {snapshot.dead_letters} dead letters" if snapshot.dead_letters else ""
    head = line(f"combee top  {broker}  {prefix}  {moment(snapshot.at_ms)} UTC{letters}", "bold")
    missing = [line(f"{name} cannot be read: {why}", "yellow") for name, why in snapshot.unreadable.items()]
    parts: list[list[RenderableType]] = [[head, *missing], [flow(snapshot.stages, room)]]
    if snapshot.playbooks:
        parts.append([playbooks(snapshot, room, narrow=narrow)])
        newest = snapshot.playbooks[0]
        if narrow:
            why = why_text(newest.branch, newest.batch_size_reason)
            parts[-1].append(line(f"batch size {newest.batch_size}: {why}", "dim"))
        parts[-1] += [
            line(f"paused: {book.name}: {book.paused}", "yellow")
            for book in snapshot.playbooks[: room.playbooks]
            if book.paused
        ]
    running = current_batch(snapshot.batches)
    if running is not None:
        parts.append(list(batch(running, room)))
    parts += [list(versions(snapshot.playbooks, room, narrow=narrow)), list(dead_letters(snapshot, room))]
    gap: list[RenderableType] = [Text()] if room.is_spaced else []
    return Group(
        *[
            renderable
            for at, part in enumerate(filter(None, parts))
            for renderable in (gap if at else []) + part
        ]
    )


def line(text: str, style: str = "") -> Text:
    """Return possibly foreign text as one line, cut to the screen's width."""
    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")


def flow(stages: Iterable[Stage], room: Room = ROOMS[0]) -> Table:
    """Return the topics with their rates, and how far their readers are behind."""
    table = Table("flow", "offsets", "per second", "lag", "oldest (s)", box=None)
    for name in table.columns[1:]:
        name.justify = "right"
    for stage in stages:
        if not (room.all_stages or stage.offsets):
            continue
        behind = Text("" if stage.lag is None else f"{stage.lag:,}", style="yellow" if stage.lag else "")
        waited = "" if stage.lag_s is None else f"{stage.lag_s:.1f}"
        table.add_row(stage.name, f"{stage.offsets:,}", f"{stage.rate_per_s:.1f}", behind, waited)
    return table


def playbooks(snapshot: Snapshot, room: Room = ROOMS[0], *, narrow: bool = False) -> Table:
    """Return the playbooks that changed last: windows, batch sizes and why, retention, what today cost."""
    table = _named("playbook", narrow=narrow)
    for title in (
        "version",
        *(() if narrow else ("entries",)),
        "window",
        "retention",
        *(() if narrow else ("omitted",)),
        "tokens today",
        "money",
    ):
        table.add_column(title.removesuffix(" today") if narrow else title)
    if not narrow:
        table.add_column("why this batch size")
    above = ""
    for playbook in snapshot.playbooks[: room.playbooks]:
        # A long name is cut at its end, the part that tells branches apart.
        is_below = narrow and is_branch_of(playbook.name, above)
        above = above if is_below else playbook.name
        table.add_row(
            Text(printable(f"└ @{branch_in(playbook.name)}" if is_below else playbook.name)),
            str(playbook.version),
            *(() if narrow else (counts_text(playbook.entries, playbook.proposed),)),
            window(playbook, SHORT_BAR if narrow else BAR),
            percent(playbook.retention),
            *(() if narrow else (percent(playbook.omitted),)),
            f"{playbook.spend_tokens:,}",
            f"{playbook.spend_cost:,.2f}",
            *(() if narrow else (Text(shortened(_why(playbook), MAX_TEXT)),)),
        )
    hidden = snapshot.playbooks_total - len(snapshot.playbooks[: room.playbooks])
    if hidden > 0:
        table.add_row(Text(f"… {hidden} more", style="dim"))
    return table


def _why(playbook: LivePlaybook) -> str:
    """Return the reason for the batch size; for a branch, its own settings."""
    if playbook.branch is None:
        return why_text(None, playbook.batch_size_reason)
    return f"forked from {branch_text(branch_report(playbook.branch))}"


def _named(title: str, *, narrow: bool, before: int = 0) -> Table:
    """Return a table whose first column is a playbook's name, after ``before`` other characters."""
    table = Table(box=None)
    table.add_column(
        title, no_wrap=True, overflow="ellipsis", max_width=before + NAME_WIDTH if narrow else None
    )
    return table


def window(playbook: LivePlaybook, bar: int = BAR) -> Text:
    """Return how full a window is."""
    size = max(playbook.batch_size, 1)
    full = min(bar, bar * playbook.waiting // size)
    return Text.assemble(
        ("█" * full, "cyan"),
        ("░" * (bar - full), "dim"),
        f" {window_text(playbook.waiting, playbook.batch_size, of='/')}",
    )


def batch(running: LiveBatch, room: Room = ROOMS[0]) -> Iterator[RenderableType]:
    """Yield a batch and its tree, node by node."""
    yield line(
        f"batch {running.sequence} of {running.playbook}: {running.about}; {progress_text(running)}",
        "bold cyan",
    )
    if running.shape_reason:
        yield line(running.shape_reason, "dim")
    if running.version is not None and not all(node.is_settled for node in running.nodes):
        return  # it ended before it was observed, so its nodes' results were not read
    if len(running.nodes) <= room.nodes:
        yield from tree(running.nodes)
    else:
        yield from levels(running.nodes)


def tree(nodes: Sequence[LiveNode]) -> Iterator[Tree]:
    """Yield the tree from its root down."""
    below: dict[str, list[LiveNode]] = {}
    for node in nodes:
        below.setdefault(node.parent_id, []).append(node)

    def grow(branch: Tree, parent: str) -> None:
        for child in below.get(parent, ()):
            grow(branch.add(_node(child)), child.node_id)

    for root in below.get("", ()):
        top = Tree(_node(root), guide_style="dim")
        grow(top, root.node_id)
        yield top


def levels(nodes: Sequence[LiveNode]) -> Iterator[Text]:
    """Yield a line per level, root first, a sign per node."""
    for level in sorted({node.level for node in nodes}, reverse=True):
        inside = [node for node in nodes if node.level == level]
        done = sum(node.is_settled for node in inside)
        row = line(f"level {level}  {done:>4}/{len(inside)}  ")
        for node in inside:
            row.append_text(_sign(node))
        yield row


def _sign(node: LiveNode) -> Text:
    sign, style = SIGNS[node.state]
    return Text(sign, style=SPOILT.get(node.status or "", style))


def _node(node: LiveNode) -> Text:
    row = _sign(node)
    row.no_wrap, row.overflow = True, "ellipsis"
    row.append(f" level {node.level} node {node.index}")
    if node.state == "done":
        tokens = node.tokens_in + node.tokens_out
        row.append(f"  {node.status}, {node.operations} operations, {tokens:,} tokens below", style="dim")
        row.append(
            f"  {shortened(node.reason, MAX_TEXT)}" if node.reason else "",
            style=SPOILT.get(node.status or "", ""),
        )
    else:
        row.append(f"  {WORDS.get(node.state, node.state)}", style="dim")
    return row


def versions(
    books: Iterable[LivePlaybook], room: Room = ROOMS[0], *, narrow: bool = False
) -> Iterator[RenderableType]:
    """Yield the newest versions of all playbooks."""
    newest = newest_versions(books, room.versions)[: room.versions]
    if not newest:
        return
    table = _named("newest versions", narrow=narrow, before=len("00:00:00  "))
    for title in ("version", "from", "entries", *(() if narrow else ("reflections",)), "retention", "s"):
        table.add_column(title)
    for name, version in newest:
        when = moment(version.at_ms)[-len("00:00:00") :] if narrow else moment(version.at_ms)
        table.add_row(
            Text(printable(f"{when}  {name}")),
            str(version.version),
            version.origin,
            counts_text(version.entries, version.proposed),
            *(() if narrow else (str(version.reflections or ""),)),
            percent(version.retention),
            f"{version.seconds:.1f}" if version.seconds else "",
        )
    yield table


def dead_letters(snapshot: Snapshot, room: Room = ROOMS[0]) -> Iterator[RenderableType]:
    """Yield the newest dead letters."""
    if snapshot.dead_letters_recent:
        yield Text("dead letters ('combee dlq list')", style="bold red")
    for letter in snapshot.dead_letters_recent[: room.letters]:
        yield line(
            f"{moment(letter.at_ms)}  {letter.service}  {letter.origin}  {shortened(letter.reason, MAX_TEXT)}"
        )
