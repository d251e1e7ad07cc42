"""The first page: the flow with rates and lag, windows filling, the running batch, the newest versions."""

from nicegui import ui

from combee.core.live.values import LivePlaybook, Snapshot
from combee.dashboard.pieces import Tree, fill, following, heading, table, unreadable
from combee.dashboard.views import Card, Row, cards, current_batch, share_full, version_rows
from combee.dashboard.wording import address
from combee.gateway.context import Context

WINDOWS = 8


def page(context: Context) -> None:
    """Build the page."""
    heading("Flow")
    unreadable(context)
    flow = _Cards()
    heading("Windows", 2)
    windows = _Windows()
    heading("Running batch", 2)
    tree = Tree()
    heading("Newest versions", 2)
    columns = {
        "name": "playbook", "version": "version", "from": "from", "entries": "entries",
        "reflections": "reflections", "retention": "retention", "took": "took", "at": "at (UTC)",
    }  # fmt: skip
    versions = table(columns, key="id", label="Newest versions", on_open=_open)

    def show() -> None:
        now = context.live.shared()
        flow.show(cards(now.stages))
        windows.show(now)
        tree.show(current_batch(now.batches))
        fill(versions, version_rows(now))

    following(context, show)


def _open(row: Row) -> None:
    ui.navigate.to(address(str(row["name"]), row["version"]))


class _Cards:
    """The topics in flow order."""

    def __init__(self) -> None:
        self._grid = ui.element("div").classes("cards")
        self._parts: dict[str, tuple[ui.element, dict[str, ui.label]]] = {}

    def show(self, now: tuple[Card, ...]) -> None:
        for card in now:
            if card.name not in self._parts:
                self._parts[card.name] = self._build(card.name)
            box, labels = self._parts[card.name]
            box.classes(replace=f"card {card.state}")
            for name, label in labels.items():
                label.text = getattr(card, name)

    def _build(self, name: str) -> tuple[ui.element, dict[str, ui.label]]:
        with self._grid, ui.element("section").props(f'aria-label="{name}"') as box:
            ui.label(name).classes("name")
            parts = {one: ui.label().classes(one) for one in ("rate", "offsets", "lag")}
            parts["offsets"].classes("quiet")
        return box, parts


class _Windows:
    """The windows of the playbooks that changed last, how full each is."""

    def __init__(self) -> None:
        self._column = ui.element("div").classes("windows")
        self._rows: dict[str, tuple[ui.linear_progress, ui.label]] = {}
        self._build([])

    def show(self, now: Snapshot) -> None:
        shown = sorted(now.playbooks[:WINDOWS], key=lambda one: one.name)
        if list(self._rows) != [one.name for one in shown]:
            self._build(shown)
        for one in shown:
            bar, label = self._rows[one.name]
            bar.value = share_full(one)
            label.text = f"{one.waiting} of {one.batch_size}"

    def _build(self, shown: list[LivePlaybook]) -> None:
        self._column.clear()
        self._rows.clear()
        with self._column:
            if not shown:
                ui.label("No playbook yet: publish a reflection or a trace.").classes("quiet")
            for one in shown:
                with ui.element("div").classes("window"):
                    ui.link(one.name, address(one.name))
                    bar = ui.linear_progress(0, show_value=False, size="10px")
                    bar.props["aria-label"] = f"window of {one.name}"
                    self._rows[one.name] = (bar, ui.label().classes("count"))
