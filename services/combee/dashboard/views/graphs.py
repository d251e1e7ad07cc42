"""Graphs as ECharts options: the flow of records through topics and services, a batch as a tree; pure.

They are drawn as SVG, so that colours are variables of the style sheet and one drawing serves both themes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from combee.core.log.live.values import LiveBatch, LiveNode, Stage
from combee.dashboard.views.charts import Options
from combee.dashboard.views.rows import KINDS, Card, card, kind_of, node_words
from combee_schemas import topics

TEXT, EDGE, QUIET = "currentColor", "var(--edge)", "var(--quiet)"
SCAN = "scan.0 – scan.3"
"""Label of the scan's levels, drawn as one topic."""
AGENTS = "agents"
PLACES: Mapping[str, tuple[float, float]] = {
    AGENTS: (0, 0),
    topics.TRACES.name: (1, 0),
    "reflect": (2, 0),
    topics.REFLECTIONS.name: (3, 0),
    "shuffle": (4, 0),
    topics.BATCHES.name: (5, 0),
    SCAN: (4, 1),
    "scan": (3, 1),
    topics.UPDATES.name: (2, 1),
    "publish": (1, 1),
    topics.PLAYBOOKS.name: (0, 1),
    topics.DEAD_LETTERS.name: (2.5, 0.55),
}
"""Column and row of each topic and service, in a circle as lessons return to agents."""
TALL = {name: (row, column) for name, (column, row) in PLACES.items()} | {topics.DEAD_LETTERS.name: (1, 5)}
"""The same places on a phone, down and up again."""
CORNERS = {AGENTS, topics.PLAYBOOKS.name, "shuffle", SCAN}
EDGES = (
    (AGENTS, topics.TRACES.name),
    (topics.TRACES.name, "reflect"),
    ("reflect", topics.REFLECTIONS.name),
    (topics.REFLECTIONS.name, "shuffle"),
    ("shuffle", topics.BATCHES.name),
    ("shuffle", SCAN),
    (SCAN, "scan"),
    ("scan", topics.UPDATES.name),
    (topics.UPDATES.name, "publish"),
    ("publish", topics.PLAYBOOKS.name),
    (topics.PLAYBOOKS.name, AGENTS),
)
ASIDE = tuple((service, topics.DEAD_LETTERS.name) for service in ("reflect", "shuffle", "scan", "publish"))
"""Edges of records that become dead letters."""
STATES = {"behind": "var(--ready)", "idle": QUIET, "": "var(--flowing)"}
FIGURE: Options = {"fontSize": 12, "lineHeight": 16, "color": TEXT}
LOOKS: Options = {
    "name": FIGURE | {"fontWeight": "bold", "fontSize": 13},
    "figure": FIGURE,
    "behind": FIGURE | {"color": "var(--behind)", "fontWeight": "bold"},
}
DOT, BOX = 26, 34
SIZES = ((30, 22), (60, 15), (120, 9), (300, 5))
"""Maximum number of leaves and the size of a node (px) up to it."""
SMALLEST = 3
WITH_MARK = 15
"""Minimum size (px) of a node that shows its mark."""
MARKS = {"waiting": "", "ready": "…", "done": "✓", "left_out": "»", "merged": "⇄", "failed": "×"}
PLAIN = {"waiting": "var(--page)", "left_out": QUIET}
"""Fill of nodes without a colour of their own."""
NARROW_PX = 640


@dataclass(frozen=True, slots=True)
class Drawn:
    """A drawing and its description for screen readers."""

    options: Options
    words: str
    shape: str = ""
    """A drawing of another shape is rebuilt, because the library's tree loses nodes when it is updated."""


def flow(stages: Iterable[Stage]) -> Drawn:
    """Return topics and services as a graph; an edge is coloured while records flow along it."""
    by_name = {stage.name: stage for stage in _with_scan_as_one(stages)}
    main = [_link(*edge, by_name) for edge in EDGES]
    aside = [_link(*edge, by_name, is_aside=True) for edge in ASIDE]
    wide: Options = {"data": [_place(name, by_name.get(name), at) for name, at in PLACES.items()]}
    tall: Options = {"data": [_place(name, by_name.get(name), at, is_tall=True) for name, at in TALL.items()]}
    series: Options = {"type": "graph", "coordinateSystem": "cartesian2d", "animation": False, "silent": True}
    columns, rows = (max(place[axis] for place in PLACES.values()) for axis in (0, 1))
    axes = {"xAxis": _axis(columns), "yAxis": _axis(rows) | {"inverse": True}}
    turned = {"xAxis": _axis(rows), "yAxis": _axis(columns) | {"inverse": True}}
    grid: Options = {"left": 60, "right": 60, "top": 40, "bottom": 66}
    links: Options = {"links": main + aside, "edgeSymbol": ["none", "arrow"], "edgeSymbolSize": 9}
    options = _responsive(
        {"animation": False, "grid": grid, **axes, "series": [series | wide | links]},
        wide={"grid": grid, **axes, "series": [wide | {"links": main + aside}]},
        narrow={
            "grid": {"left": 30, "right": 30, "top": 24, "bottom": 24},
            **turned,
            "series": [tall | {"links": main}],
        },
    )
    cards = (card(stage) for stage in by_name.values())
    summary = "; ".join(f"{place.name}: {place.rate} {place.lag}".strip() for place in cards)
    return Drawn(options, f"The flow of records. {summary}")


def _axis(most: float) -> Options:
    return {"type": "value", "show": False, "min": 0, "max": most}


def _with_scan_as_one(stages: Iterable[Stage]) -> Iterable[Stage]:
    inside = {topic.name for topic in topics.SCAN}
    scan: list[Stage] = []
    for stage in stages:
        if stage.name in inside:
            scan.append(stage)
        else:
            yield stage
    if scan:
        lags = [worker.lag for worker in scan if worker.lag is not None]
        yield Stage(
            name=SCAN,
            offsets=sum(worker.offsets for worker in scan),
            rate_per_s=sum(worker.rate_per_s for worker in scan),
            lag=sum(lags) if lags else None,
            lag_s=max((worker.lag_s for worker in scan if worker.lag_s is not None), default=None),
        )


def _place(name: str, stage: Stage | None, at: tuple[float, float], *, is_tall: bool = False) -> Options:
    is_topic = name in {SCAN, *(topic.name for topic in topics.TOPICS)}
    shown = card(stage) if stage else None
    colour = STATES[shown.state] if shown else QUIET
    # A label is next to its node, clear of the edges, or above it if an edge leaves sideways.
    looks: Options = {"position": "bottom" if is_topic else "top"}
    if is_tall:
        looks = {"position": "left" if at[0] else "right"}
        if name in CORNERS:
            looks |= {"verticalAlign": "bottom", "offset": [0, -4]}
    elif name == topics.DEAD_LETTERS.name:
        looks = {"position": "right"}
    return {
        "name": name,
        "value": list(at),
        "symbol": "circle" if is_topic else "roundRect",
        "symbolSize": DOT if is_topic else BOX,
        "itemStyle": {
            "color": colour if is_topic else "var(--box)",
            "borderColor": colour if is_topic else EDGE,
            "borderWidth": 2,
        },
        "label": {
            "show": True,
            **looks,
            "formatter": "\n".join(_lines(name, stage, shown)),
            "color": TEXT,
            "rich": LOOKS,
        },
    }


def _lines(name: str, stage: Stage | None, shown: Card | None) -> Iterator[str]:
    yield f"{{name|{name}}}"
    if stage is not None and shown is not None:
        if stage.rate_per_s:
            yield f"{{figure|{shown.rate}}}"
        if shown.lag:
            yield f"{{{'behind' if shown.state == 'behind' else 'figure'}|{shown.lag}}}"


def _link(source: str, target: str, by_name: Mapping[str, Stage], *, is_aside: bool = False) -> Options:
    carrying = by_name.get(target) or by_name.get(source)
    flows = carrying is not None and carrying.rate_per_s > 0
    return {
        "source": source,
        "target": target,
        "lineStyle": {
            "color": "var(--flowing)" if flows else EDGE,
            "width": 1.5 if is_aside else 3 if flows else 2,
            "type": "dashed" if is_aside else "solid",
            "opacity": 1,
            "curveness": 0,
        },
    }


def tree(batch: LiveBatch) -> Drawn:
    """Return a batch as its tree of calls, root on top."""
    widest = max(batch.widths, default=1)
    size = next((px for most, px in SIZES if widest <= most), SMALLEST)
    narrow = next((px for most, px in SIZES if 3 * widest <= most), SMALLEST)
    children: dict[str, list[LiveNode]] = {}
    for node in batch.nodes:
        children.setdefault(node.parent_id, []).append(node)
    is_over = batch.version is not None
    series: Options = {
        "type": "tree",
        "orient": "TB",
        "data": [_branch(node, children, is_over=is_over) for node in children.get("", ())],
        "top": 20,
        "bottom": 20,
        "left": 16,
        "right": 16,
        "symbol": "circle",
        "symbolSize": size,
        "initialTreeDepth": -1,
        "expandAndCollapse": False,
        "animation": False,
        "roam": False,
        "lineStyle": {"color": EDGE, "width": 1.5, "curveness": 0.5},
        "label": _mark(size),
    }
    options = _responsive(
        {
            "animation": False,
            "tooltip": {"renderMode": "richText", "formatter": "{b}", "confine": True},
            "series": [series],
        },
        wide={"series": [{"symbolSize": size, "label": _mark(size)}]},
        narrow={"series": [{"symbolSize": narrow, "label": _mark(narrow)}]},
    )
    counts = {kind: sum(kind_of(node, is_over=is_over) == kind for node in batch.nodes) for kind in KINDS}
    summary = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    levels = " → ".join(map(str, batch.widths))
    return Drawn(
        options, f"A tree of {len(batch.nodes)} model calls in levels of {levels}: {summary}", batch.batch_id
    )


def _responsive(base: Options, *, wide: Options, narrow: Options) -> Options:
    """Return options that follow the width of the page."""
    return {
        "baseOption": base,
        "media": [{"query": {"maxWidth": NARROW_PX}, "option": narrow}, {"option": wide}],
    }


def _mark(size: int) -> Options:
    return {
        "show": size >= WITH_MARK,
        "position": "inside",
        "color": "#fff",
        "fontSize": size * 0.6,
        "fontWeight": "bold",
    }


def _branch(node: LiveNode, children: Mapping[str, Sequence[LiveNode]], *, is_over: bool) -> dict[str, Any]:
    kind = kind_of(node, is_over=is_over)
    below = [_branch(child, children, is_over=is_over) for child in children.get(node.node_id, ())]
    return {
        "name": node_words(node, is_over=is_over),
        "id": node.node_id,
        "symbol": "rect" if kind == "failed" else "diamond" if kind == "merged" else "circle",
        "itemStyle": {
            "color": PLAIN.get(kind, f"var(--{kind})"),
            "borderColor": QUIET if kind in PLAIN else f"var(--{kind})",
            "borderWidth": 1.5,
        },
        "label": {"formatter": MARKS[kind]},
        **({"children": below} if below else {}),
    }
