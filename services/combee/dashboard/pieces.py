"""Components shared by several pages; each is built once and then follows the live snapshot."""

import json
from collections.abc import Callable
from copy import deepcopy

from nicegui import ui

from combee.core.log.live.values import LiveBatch
from combee.dashboard.views.charts import Options
from combee.dashboard.views.graphs import Drawn, tree
from combee.dashboard.views.rows import KINDS, Row, headline
from combee.gateway.context import Context
from combee_schemas.topics import AnyTopic

PAGE_ROWS = 20
REFRESH_S = 0.4
"""Interval at which a page checks whether the snapshot has changed; the check reads only memory."""


def fill(shown: ui.table, rows: list[Row], most: int = PAGE_ROWS) -> None:
    """Put rows into a table if they differ; hide the pagination if there is one page of ``most`` rows."""
    if shown.rows != rows:
        shown.rows = rows
        if "virtual-scroll" not in shown.props:
            shown.props["hide-pagination"] = len(rows) <= most
        shown.update()


def heading(text: str, level: int = 1) -> None:
    """Add a heading."""
    with ui.element(f"h{level}"):
        ui.label(text)


def replace_address(path: str) -> None:
    """Set the browser's address to the shown content, so that it can be shared and reloaded."""
    ui.run_javascript(
        f"history.replaceState(history.state, '', (window.path_prefix ?? '') + {json.dumps(path)})"
    )


def following(context: Context, show: Callable[[], None]) -> None:
    """Show now, and again after every change of the snapshot, while the page is open."""
    seen = -1

    def turn() -> None:
        nonlocal seen
        if context.live.shared().revision != seen:
            seen = context.live.shared().revision
            show()

    turn()
    ui.timer(REFRESH_S, turn)


def unreadable(context: Context, *topics: AnyTopic) -> None:
    """Warn while these topics cannot be read, with the reason; without topics, any topic."""
    status = ui.label().classes("unreadable").props("role=status")
    names = {topic.name for topic in topics}

    def show() -> None:
        troubles = context.live.shared().unreadable
        status.text = "\n".join(
            f"{name} cannot be read: {why}" for name, why in troubles.items() if not names or name in names
        )
        status.set_visibility(bool(status.text))

    following(context, show)


def table(
    columns: dict[str, str],
    *,
    key: str,
    label: str,
    on_open: Callable[[Row], None] | None = None,
    virtual: bool = False,
    most: int = PAGE_ROWS,
) -> ui.table:
    """Return an empty table of ``most`` rows a page; with ``on_open`` its first column is a link.

    A ``virtual`` table scrolls and renders only the visible rows. On a phone each row is a list, in which the style
    names each cell.
    """
    described = [
        {
            "name": name,
            "label": title,
            "field": name,
            "align": "left",
            "sortable": True,
            "style": f"--column: {json.dumps(title)}",
        }
        for name, title in columns.items()
    ]
    made = ui.table(columns=described, rows=[], row_key=key, pagination=None if virtual else most)
    made.classes("w-full").props(f'flat dense wrap-cells role="region" aria-label="{label}"')
    if virtual:
        made.classes("virtual").props("virtual-scroll tabindex=0")
    made.add_slot("no-data", "<div class='quiet'>Nothing yet</div>")
    if on_open is not None:
        first = next(iter(columns))
        link = "<a href='#' @click.prevent=\"() => $parent.$emit('open', props.row)\">{{ props.value }}</a>"
        made.add_slot(f"body-cell-{first}", f"<q-td :props='props'>{link}</q-td>")
        made.on("open", lambda event: on_open(event.args))
    return made


class Facts:
    """Texts, each after its name."""

    def __init__(self) -> None:
        self._place = ui.element("div").classes("facts")
        self._shown: dict[str, str] = {}

    def show(self, facts: dict[str, str]) -> None:
        """Show the texts if they differ."""
        if facts == self._shown:
            return
        self._shown = dict(facts)
        self._place.clear()
        with self._place:
            for name, text in facts.items():
                ui.label(name).classes("quiet")
                ui.label(text).classes("words")


def chart(label: str) -> ui.echart:
    """Return an empty plot."""
    return ui.echart({}).classes("plot").props(f'role="img" aria-label="{label}"')


def draw(plot: ui.echart, options: Options) -> None:
    """Draw a plot anew if it differs."""
    if plot.options != options:
        plot.options.clear()
        plot.options.update(options)
        plot.update()


class Graph:
    """A drawing that changes; a text and a table have the same content."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._place = ui.element("div").classes("w-full")
        self._shown: Drawn | None = None
        self._chart: ui.echart | None = None

    def set_visibility(self, *, shown: bool) -> None:
        """Show or hide the drawing."""
        self._place.set_visibility(shown)

    def show(self, drawn: Drawn) -> None:
        """Redraw if the drawing differs."""
        if self._shown == drawn:
            return
        options = deepcopy(drawn.options)
        if self._chart is None or self._shown is None or self._shown.shape != drawn.shape:
            self._place.clear()
            with self._place:
                self._chart = (
                    ui.echart(options, renderer="svg").classes(f"graph {self._kind}").props("role=img")
                )
        else:
            self._chart.options.clear()
            self._chart.options.update(options)
        self._chart.props["aria-label"] = drawn.words
        self._chart.update()
        self._shown = drawn


class BatchTree:
    """A batch as a tree, with a description."""

    def __init__(self) -> None:
        self._title = ui.label().classes("words")
        self._why = ui.label().classes("quiet")
        self._graph = Graph("tree")
        self._legend = _legend()

    def show(self, batch: LiveBatch | None) -> None:
        """Show the present state of a batch."""
        self._graph.set_visibility(shown=batch is not None)
        self._legend.set_visibility(batch is not None)
        if batch is None:
            self._title.text = "No batch yet: it begins when a window is full, or has waited long enough."
            return
        self._title.text, self._why.text = headline(batch), batch.shape_reason
        self._graph.show(tree(batch))


def _legend() -> ui.element:
    with ui.element("div").classes("legend quiet") as legend:
        for kind, (icon, words) in KINDS.items():
            with ui.element("div"):
                ui.icon(icon).classes(f"chip {kind}")
                ui.label(words)
    return legend
