"""The last batches, and each of them as a tree with all its nodes."""

from nicegui import ui

from combee.core.log.live.values import current_batch
from combee.dashboard.pieces import BatchTree, fill, following, heading, table, unreadable
from combee.dashboard.views.rows import batch_rows, node_rows
from combee.gateway.context import Context
from combee_schemas import topics

COLUMNS = {
    "name": "batch",
    "reflections": "reflections",
    "tree": "nodes per level",
    "closed": "closed (UTC)",
    "took": "took",
    "version": "version",
}
NODES = {
    "node": "node",
    "state": "state",
    "operations": "operations",
    "tokens": "tokens below it",
    "reason": "reason",
}
NODE_STATE = """<q-td :props="props" :data-state="props.row.kind">
<q-icon :name="props.row.icon" :class="['chip', props.row.kind]" aria-hidden="true"></q-icon>
<span class="beside">{{ props.value }}</span></q-td>"""


def page(context: Context, batch_id: str = "") -> None:
    """Build the page; without an id it follows the running batch."""
    heading("Batches")
    unreadable(context, topics.BATCHES, *topics.SCAN, topics.UPDATES, topics.HISTORY)
    missing = ui.label("This batch is not among the last 50.").classes("quiet")
    tree = BatchTree()
    with ui.element("section") as below:
        with ui.expansion("Its nodes as a table").classes("w-full").props("dense") as listed:
            nodes = table(NODES, key="id", label="Nodes")
            nodes.add_slot("body-cell-state", NODE_STATE)
        listed.value = True
        heading("The last batches", 2)
        rows = table(
            COLUMNS,
            key="id",
            label="The last batches",
            on_open=lambda row: ui.navigate.to(f"/batches/{row['id']}"),
        )

    def show() -> None:
        now = context.live.shared()
        chosen = context.live.picture.batch(batch_id) if batch_id else current_batch(now.batches)
        missing.set_visibility(bool(batch_id) and chosen is None)
        below.set_visibility(bool(now.batches))
        if chosen is not None or not batch_id:
            tree.show(chosen)
            fill(nodes, node_rows(chosen) if chosen else [])
        fill(rows, batch_rows(now.batches))

    following(context, show)
