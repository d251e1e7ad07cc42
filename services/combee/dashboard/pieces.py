"""Pieces that several pages are made of; each is built once and then follows the picture."""

import json
from collections.abc import Callable
from functools import partial

from nicegui import ui

from combee.core.live.values import LiveBatch
from combee.dashboard.views import KINDS, Chip, Level, Row, headline, levels
from combee.gateway.context import Context
from combee_schemas.topics import AnyTopic

PAGE_ROWS = 20
TURN_S = 0.4
"""How often a page looks whether the picture has changed: memory alone is looked at."""


def fill(shown: ui.table, rows: list[Row]) -> None:
    """Put rows into a table, if they are others; pages are offered only where there are several."""
    if shown.rows != rows:
        shown.rows = rows
        shown.props["hide-pagination"] = len(rows) <= PAGE_ROWS
        shown.update()


def heading(text: str, level: int = 1) -> None:
    """Add a heading."""
    with ui.element(f"h{level}"):
        ui.label(text)


def replace_address(path: str) -> None:
    """Let the browser's address name what is shown, so that it can be shared and reloaded."""
    ui.run_javascript(
        f"history.replaceState(history.state, '', (window.path_prefix ?? '') + {json.dumps(path)})"
    )


def following(context: Context, show: Callable[[], None]) -> None:
    """Show now, and again after every change of the picture, while the page is open."""
    seen = -1

    def turn() -> None:
        nonlocal seen
        if context.live.shared().revision != seen:
            seen = context.live.shared().revision
            show()

    turn()
    ui.timer(TURN_S, turn)


def unreadable(context: Context, *topics: AnyTopic) -> None:
    """Say while some of what a page shows cannot be read, and why; without topics, of anything."""
    told = ui.label().classes("unreadable").props("role=status")
    names = {topic.name for topic in topics}

    def show() -> None:
        found = context.live.shared().unreadable
        told.text = "\n".join(
            f"{name} cannot be read: {why}" for name, why in found.items() if not names or name in names
        )
        told.set_visibility(bool(told.text))

    following(context, show)


def table(
    columns: dict[str, str], *, key: str, label: str, on_open: Callable[[Row], None] | None = None
) -> ui.table:
    """Return an empty table; with ``on_open`` its first column is a link."""
    described = [
        {"name": name, "label": title, "field": name, "align": "left", "sortable": True}
        for name, title in columns.items()
    ]
    made = ui.table(columns=described, rows=[], row_key=key, pagination=PAGE_ROWS).classes("w-full")
    made.props(f'flat dense wrap-cells role="region" aria-label="{label}"')
    made.add_slot("no-data", "<div class='quiet'>Nothing yet</div>")
    if on_open is not None:
        first = next(iter(columns))
        link = "<a href='#' @click.prevent=\"() => $parent.$emit('open', props.row)\">{{ props.value }}</a>"
        made.add_slot(f"body-cell-{first}", f"<q-td :props='props'>{link}</q-td>")
        made.on("open", lambda event: on_open(event.args))
    return made


class Tree:
    """A batch as rows of nodes, root first; nodes light up as their results arrive."""

    def __init__(self) -> None:
        self._title = ui.label().classes("words")
        self._why = ui.label().classes("quiet")
        self._rows = ui.element("div").classes("tree").props('role="group" aria-label="Nodes"')
        self._rows.set_visibility(False)
        self._told = ui.label().classes("words told").props("aria-live=polite")
        """What the node says that has the focus: fingers and keyboards see no tooltip."""
        _legend()
        self._batch, self._focus = "", ""
        self._chips: dict[str, ui.icon] = {}
        self._shown: dict[str, Chip] = {}
        self._done: list[ui.label] = []

    def show(self, batch: LiveBatch | None) -> None:
        """Show a batch as it stands."""
        self._rows.set_visibility(batch is not None)
        if batch is None:
            self._title.text = "No batch yet: it begins when a window is full, or has waited long enough."
            return
        self._title.text, self._why.text = headline(batch), batch.shape_reason
        shown = levels(batch)
        if self._batch != batch.batch_id:
            self._build(batch.batch_id, shown)
        for label, level in zip(self._done, shown, strict=True):
            label.text = level.done
        for chip in (chip for level in shown for family in level.families for chip in family):
            if self._shown.get(chip.node_id) != chip:
                self._shown[chip.node_id] = chip
                _change(self._chips[chip.node_id], chip)
        self._tell(self._focus)

    def _tell(self, node_id: str) -> None:
        chip = self._shown.get(node_id)
        self._focus = node_id
        self._told.text = chip.title if chip else ""

    def _build(self, batch_id: str, shown: tuple[Level, ...]) -> None:
        self._batch, self._focus = batch_id, ""
        self._chips.clear()
        self._shown.clear()
        self._done.clear()
        self._rows.clear()
        with self._rows:
            for level in shown:
                with ui.element("div").classes("level"):
                    ui.label(level.name)
                    self._done.append(ui.label(level.done).classes("quiet"))
                    with ui.element("div").classes("families"):
                        for family in level.families:
                            self._family(family)

    def _family(self, family: tuple[Chip, ...]) -> None:
        with ui.element("div").classes("family"):
            for chip in family:
                shown = self._chips[chip.node_id] = ui.icon(chip.icon).props("tabindex=0")
                shown.on("focus", partial(self._tell, chip.node_id))


def _change(shown: ui.icon, chip: Chip) -> None:
    shown.props["name"] = chip.icon
    shown.props.update(
        {"role": "button", "title": chip.title, "aria-label": chip.title, "data-state": chip.kind}
    )
    shown.props["aria-hidden"] = "false"
    shown.classes(replace=f"chip {chip.kind}")
    shown.update()


def _legend() -> None:
    with ui.element("div").classes("legend quiet"):
        for kind, (icon, words) in KINDS.items():
            with ui.element("div"):
                ui.icon(icon).classes(f"chip {kind}")
                ui.label(words)
