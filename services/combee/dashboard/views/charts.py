"""Plots as ECharts options: batch size, retention and cost over time; pure."""

from collections.abc import Sequence
from typing import Any

from combee.core.log.live.values import LivePlaybook, LiveVersion

GREY = "#8a8f98"
"""Colour that is readable in both themes."""
BLUE, GREEN, AMBER = "#4f8ff7", "#2fa36b", "#d18f2b"
VIOLET, TEAL = "#9a6fe0", "#2f9fa3"
COUNTS = {"known": BLUE, "dropped": GREY, "omitted": AMBER, "said": VIOLET, "verified": TEAL}
"""Counts of an audit that are drawn next to the retention, with their colours."""
Options = dict[str, Any]
Points = Sequence[tuple[int, float]]


def batch_sizes(playbook: LivePlaybook) -> Options:
    """Return the requested and the actual size of each batch."""
    asked = [(version.at_ms, version.batch_size) for version in playbook.versions if version.batch_size]
    taken = [(version.at_ms, version.reflections) for version in playbook.versions if version.reflections]
    return _over_time(
        ("reflections per batch", ""),
        [_line("batch size", asked, BLUE, step="end"), _line("reflections", taken, GREY, dots=True)],
    )


def retention(playbook: LivePlaybook) -> Options:
    """Return the shares of each batch's reflections kept, dropped, omitted, said and verified."""
    batches = [version for version in playbook.versions if version.retention is not None]
    kept = [(version.at_ms, 100 * (version.retention or 0.0)) for version in batches]
    shares = [
        (
            name,
            [(batch.at_ms, share) for batch in batches if (share := _percent(batch, name)) is not None],
            colour,
        )
        for name, colour in COUNTS.items()
    ]
    options = _over_time(
        ("what became of the reflections", "%"),
        [_line("new or known", kept, GREEN), *(_line(*share) for share in shares)],
    )
    options["yAxis"] |= {"min": 0, "max": 100}
    return options


def _percent(version: LiveVersion, count: str) -> float | None:
    """Return the share of a version's reflections that a count of its audit has."""
    audit = version.audit
    return 100 * getattr(audit, count) / audit.reflections if audit and audit.reflections else None


def cost(playbook: LivePlaybook) -> Options:
    """Return the cost of each version: money if prices are set, else tokens."""
    priced = any(version.cost for version in playbook.versions)
    points = [
        (version.at_ms, version.cost if priced else version.tokens)
        for version in playbook.versions
        if version.origin == "batch"
    ]
    labels = ("cost per batch", "") if priced else ("tokens per batch", "")
    return _over_time(labels, [_line(labels[0], points, AMBER)])


def _over_time(named: tuple[str, str], series: list[Options]) -> Options:
    name, unit = named
    return {
        "animation": False,
        "aria": {"enabled": True, "label": {"description": f"{name} over time"}},
        "textStyle": {"color": GREY},
        "title": {
            "text": name,
            "left": 0,
            "textStyle": {"color": GREY, "fontSize": 12, "fontWeight": "normal"},
        },
        "legend": {"show": len(series) > 1, "top": 0, "right": 0, "textStyle": {"color": GREY}},
        "tooltip": {"trigger": "axis"},
        "grid": {"left": 8, "right": 20, "top": 40, "bottom": 8, "containLabel": True},
        "xAxis": {"type": "time", "axisLabel": {"color": GREY, "hideOverlap": True}},
        "yAxis": {
            "type": "value",
            "axisLabel": {"color": GREY, "formatter": f"{{value}}{unit}"},
            "splitLine": {"lineStyle": {"color": GREY, "opacity": 0.2}},
        },
        "series": series,
    }


def _line(name: str, points: Points, colour: str, *, step: str | None = None, dots: bool = False) -> Options:
    return {
        "name": name,
        "type": "scatter" if dots else "line",
        "data": [list(point) for point in points],
        "symbolSize": 6,
        "color": colour,
        **({"step": step} if step else {}),
    }
