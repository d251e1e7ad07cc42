"""The flow: topics and services with rates and lag, windows filling, the running batch, the newest versions."""

from nicegui import ui

from combee.core.log.live.values import LivePlaybook, Snapshot, current_batch
from combee.dashboard.pieces import BatchTree, Graph, fill, following, heading, table, unreadable
from combee.dashboard.views import graphs
from combee.dashboard.views.rows import Row, share_full, stage_rows, version_rows
from combee.dashboard.views.wording import address
from combee.gateway.context import Context

WINDOWS = 8
"""Maximum number of windows shown."""
TOPICS = {"name": "topic", "rate": "offsets per second", "offsets": "offsets so far", "lag": "its readers"}
VERSIONS = {
    "name": "playbook",
    "version": "version",
    "from": "from",
    "entries": "entries",
    "reflections": "reflections",
    "retention": "retention",
    "took": "took",
    "at": "at (UTC)",
}


def page(context: Context) -> None:
    """Build the page."""
    heading("Flow")
    unreadable(context)
    flow = Graph("flow")
    with ui.expansion("The same as a table").classes("w-full").props("dense"):
        stages = table(TOPICS, key="name", label="Topics")
    heading("Windows", 2)
    windows = _Windows()
    with ui.element("section") as running:
        heading("Latest batch", 2)
        tree = BatchTree()
    with ui.element("section") as made:
        heading("Newest versions", 2)
        versions = table(VERSIONS, key="id", label="Newest versions", on_open=_open)

    def show() -> None:
        now = context.live.shared()
        flow.show(graphs.flow(now.stages))
        fill(stages, stage_rows(now.stages))
        windows.show(now)
        tree.show(current_batch(now.batches))
        running.set_visibility(bool(now.batches))
        newest = version_rows(now)
        fill(versions, newest)
        made.set_visibility(bool(newest))

    following(context, show)


def _open(row: Row) -> None:
    ui.navigate.to(address(str(row["name"]), row["version"]))


class _Windows:
    """Windows of the playbooks that changed last, each with the share of a batch that it holds."""

    def __init__(self) -> None:
        self._column = ui.element("div").classes("windows")
        self._rows: dict[str, tuple[ui.linear_progress, ui.label]] = {}
        self._build([])

    def show(self, now: Snapshot) -> None:
        shown = sorted(now.playbooks[:WINDOWS], key=lambda playbook: playbook.name)
        if list(self._rows) != [playbook.name for playbook in shown]:
            self._build(shown)
        for playbook in shown:
            bar, label = self._rows[playbook.name]
            bar.value = share_full(playbook)
            label.text = playbook.window

    def _build(self, shown: list[LivePlaybook]) -> None:
        self._column.clear()
        self._rows.clear()
        with self._column:
            if not shown:
                ui.label("No playbook yet: publish a reflection or a trace.").classes("quiet")
            for playbook in shown:
                with ui.element("div").classes("window"):
                    ui.link(playbook.name, address(playbook.name))
                    bar = ui.linear_progress(0, show_value=False, size="10px")
                    bar.props["aria-label"] = f"window of {playbook.name}"
                    self._rows[playbook.name] = (bar, ui.label().classes("count"))
