"""One frame of ``combee top``: a live picture as text, tables and a tree."""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from combee.cli.console import clean, moment
from combee.core.live.values import LiveBatch, LiveNode, LivePlaybook, Snapshot, Stage
from combee.core.retention import percent

BAR = 12
MOST_PLAYBOOKS = 8
MOST_VERSIONS = 6
MOST_IN_A_TREE = 24
"""With more nodes a batch is drawn a line per level."""
LONG = 60
SIGNS = {"done": ("●", "green"), "ready": ("◐", "yellow"), "waiting": ("○", "dim")}
SPOILT = {"merged": "magenta", "failed": "red"}


def frame(snapshot: Snapshot, *, broker: str, prefix: str) -> RenderableType:
    """Return everything that there is to see at one moment."""
    letters = f"; {snapshot.dead_letters} dead letters" if snapshot.dead_letters else ""
    head = Text(clean(f"combee top  {broker}  {prefix}  {moment(snapshot.at_ms)} UTC{letters}"), style="bold")
    missing = [
        Text(clean(f"{name} cannot be read: {why}"), style="yellow")
        for name, why in snapshot.unreadable.items()
    ]
    parts: list[RenderableType] = [head, *missing, Text(), flow(snapshot.stages)]
    if snapshot.playbooks:
        parts += [Text(), playbooks(snapshot)]
    running = running_batch(snapshot.batches)
    if running is not None:
        parts += [Text(), *batch(running)]
    parts += [Text(), *versions(snapshot.playbooks), *dead_letters(snapshot)]
    return Group(*parts)


def flow(stages: Iterable[Stage]) -> Table:
    """Return the topics with their rates, and how far their readers are behind."""
    table = Table("flow", "records", "per second", "lag", "oldest (s)", box=None)
    for name in table.columns[1:]:
        name.justify = "right"
    for stage in stages:
        behind = Text("" if stage.lag is None else f"{stage.lag:,}", style="yellow" if stage.lag else "")
        waited = "" if stage.lag_s is None else f"{stage.lag_s:.1f}"
        table.add_row(stage.name, f"{stage.records:,}", f"{stage.rate_per_s:.1f}", behind, waited)
    return table


def playbooks(snapshot: Snapshot) -> Table:
    """Return the playbooks that changed last: windows, batch sizes and why, retention, what today cost."""
    columns = ("playbook", "version", "entries", "window", "batch size", "retention", "tokens today", "money")
    table = Table(*columns, "why this size", box=None)
    for one in snapshot.playbooks[:MOST_PLAYBOOKS]:
        table.add_row(
            Text(clean(one.name)),
            str(one.version),
            str(one.entries),
            window(one),
            str(one.batch_size),
            percent(one.retention),
            f"{one.spend_tokens:,}",
            f"{one.spend_cost:,.2f}",
            Text(_short(one.batch_size_reason)),
        )
    hidden = snapshot.playbooks_total - len(snapshot.playbooks[:MOST_PLAYBOOKS])
    if hidden > 0:
        table.add_row(Text(f"… {hidden} more", style="dim"))
    return table


def window(playbook: LivePlaybook) -> Text:
    """Return how full a window is."""
    size = max(playbook.batch_size, 1)
    full = min(BAR, BAR * playbook.waiting // size)
    return Text.assemble(
        ("█" * full, "cyan"), ("░" * (BAR - full), "dim"), f" {playbook.waiting}/{playbook.batch_size}"
    )


def running_batch(batches: Sequence[LiveBatch]) -> LiveBatch | None:
    """Return the oldest batch in flight, the newest done one where none is."""
    flying = [one for one in batches if one.version is None]
    return flying[-1] if flying else next(iter(batches), None)


def batch(running: LiveBatch) -> Iterator[RenderableType]:
    """Yield a batch and its tree, node by node."""
    done = sum(node.state == "done" for node in running.nodes)
    state = (
        f"became version {running.version}"
        if running.version
        else f"{done} of {len(running.nodes)} nodes done"
    )
    why = f"; closed by {running.reason}" if running.reason else ""
    title = f"batch {running.sequence} of {running.playbook}: {running.reflections} reflections{why}; {state}"
    yield Text(clean(title), style="bold cyan")
    if running.shape_reason:
        yield Text(clean(running.shape_reason), style="dim")
    if running.version is not None and done < len(running.nodes):
        return  # it was over before anybody looked: what its nodes did has not been read
    if len(running.nodes) <= MOST_IN_A_TREE:
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
        done = sum(node.state == "done" for node in inside)
        line = Text(f"level {level}  {done:>4}/{len(inside)}  ")
        for node in inside:
            line.append_text(_sign(node))
        yield line


def _sign(node: LiveNode) -> Text:
    sign, style = SIGNS[node.state]
    return Text(sign, style=SPOILT.get(node.status or "", style))


def _node(node: LiveNode) -> Text:
    line = _sign(node)
    line.append(f" level {node.level} node {node.index}")
    if node.state == "done":
        tokens = node.tokens_in + node.tokens_out
        line.append(f"  {node.status}, {node.operations} operations, {tokens:,} tokens below", style="dim")
        line.append(
            f"  {_short(node.reason)}" if node.reason else "", style=SPOILT.get(node.status or "", "")
        )
    else:
        line.append(f"  {'asking' if node.state == 'ready' else node.state}", style="dim")
    return line


def versions(books: Iterable[LivePlaybook]) -> Iterator[RenderableType]:
    """Yield the newest versions of all playbooks."""
    made = [(one.at_ms, book.name, one) for book in books for one in book.versions]
    newest = sorted(made, key=lambda found: found[0], reverse=True)[:MOST_VERSIONS]
    if not newest:
        return
    table = Table("newest versions", "version", "from", "entries", "reflections", "retention", "s", box=None)
    for at_ms, name, one in newest:
        table.add_row(
            Text(clean(f"{moment(at_ms)}  {name}")),
            str(one.version),
            one.origin,
            str(one.entries),
            str(one.reflections or ""),
            percent(one.retention),
            f"{one.seconds:.1f}" if one.seconds else "",
        )
    yield table


def dead_letters(snapshot: Snapshot) -> Iterator[RenderableType]:
    """Yield the last records that could not be used."""
    if snapshot.dead_letters_recent:
        yield Text("\ndead letters ('combee dlq list')", style="bold red")
    for one in snapshot.dead_letters_recent[:MOST_VERSIONS]:
        yield Text(clean(f"{moment(one.at_ms)}  {one.service}  {one.origin}  {_short(one.reason)}"))


def _short(text: str) -> str:
    line = clean(" ".join(text.split()))
    return line if len(line) <= LONG else line[: LONG - 1] + "…"
