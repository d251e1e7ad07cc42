"""Plots as ECharts options: success, batch size, retention and cost over time; pure."""

from collections.abc import Iterable, Sequence
from typing import Any

from combee.core.evaluation.outcomes.report import (
    Curve,
    Estimate,
    Point,
    changes_text,
    estimate_text,
    versions_text,
)
from combee.core.log.live.values import LivePlaybook, LiveVersion
from combee.log.reports.cost import DayCost, day_text

GREY = "#8a8f98"
"""Colour that is readable in both themes."""
BLUE, GREEN, AMBER = "#4f8ff7", "#2fa36b", "#d18f2b"
VIOLET, TEAL = "#9a6fe0", "#2f9fa3"
COUNTS = {"known": BLUE, "dropped": GREY, "omitted": AMBER, "said": VIOLET, "verified": TEAL}
"""Counts of an audit that are drawn next to the retention, with their colours."""
Options = dict[str, Any]
Points = Sequence[tuple[int, float]]


def success(curve: Curve, versions: Iterable[LiveVersion]) -> Options:
    """Return success over time with its interval, the baseline, and a mark for each version.

    Data have the number of the version that they lead to.
    """
    drawn = [point for point in curve.points if point.at_ms]
    if curve.baseline and drawn and 0 < curve.baseline.at_ms < drawn[0].at_ms:
        drawn.insert(0, curve.baseline)
    known = [(point, estimate) for point in drawn if (estimate := curve.of(point))]
    is_share = curve.measure == "success"
    factor = 100 if is_share else 1
    bounds = [(point.at_ms, *_bounds(estimate, factor)) for point, estimate in known]
    options = _over_time((curve.measure, " %" if is_share else ""), [])
    options["tooltip"] = {"trigger": "item", "formatter": "{b}"}
    options["grid"]["top"] = 14
    options["series"] = [
        _band("low", [[at_ms, low] for at_ms, low, _ in bounds], 0),
        _band("interval", [[at_ms, high - low] for at_ms, low, high in bounds], 0.16),
        {
            "name": curve.measure,
            "type": "line",
            "data": [
                {
                    "value": [point.at_ms, factor * estimate.mean],
                    "name": _point_text(point, estimate, as_percent=is_share),
                    "version": point.version,
                }
                for point, estimate in known
            ],
            "symbolSize": 9,
            "symbol": "circle",
            "color": GREEN,
            "lineStyle": {"width": 2},
            "z": 3,
            **_baseline(curve, factor),
        },
    ]
    marks = [version for version in versions if changes_text(version.changes)]
    if known and marks:
        options["series"].append(
            {
                "name": "versions",
                "type": "scatter",
                "symbol": "triangle",
                "symbolSize": 10,
                "color": BLUE,
                "data": [
                    {
                        "value": [version.at_ms, 0],
                        "name": f"version {version.version}: {changes_text(version.changes)}",
                        "version": version.version,
                    }
                    for version in marks
                ],
            }
        )
    if is_share:
        options["yAxis"] |= {"min": 0, "max": 100}
    return options


def _bounds(estimate: Estimate, factor: int) -> tuple[float, float]:
    low = estimate.mean if estimate.low is None else estimate.low
    high = estimate.mean if estimate.high is None else estimate.high
    return factor * low, factor * high


def _point_text(point: Point, estimate: Estimate, *, as_percent: bool) -> str:
    return f"{versions_text(point)}: {estimate_text(estimate, as_percent=as_percent)}, {point.runs} runs"


def _band(name: str, data: list[list[float]], opacity: float) -> Options:
    """Return one of two stacked lines without a line, which fill an interval."""
    return {
        "name": name,
        "type": "line",
        "stack": "interval",
        "data": data,
        "symbol": "none",
        "silent": True,
        "lineStyle": {"opacity": 0},
        "areaStyle": {"color": GREEN, "opacity": opacity},
    }


def _baseline(curve: Curve, factor: int) -> Options:
    """Return the baseline as a dashed line across the plot."""
    estimate = curve.of(curve.baseline)
    if estimate is None:
        return {}
    return {
        "markLine": {
            "silent": True,
            "symbol": "none",
            "data": [{"yAxis": factor * estimate.mean}],
            "lineStyle": {"color": GREY, "type": "dashed"},
            "label": {"formatter": "without a playbook", "position": "insideEndTop", "color": GREY},
        }
    }


def cost_by_day(days: Sequence[DayCost]) -> Options:
    """Return the cost of each day as bars: money if there is any, else tokens."""
    priced = any(day.cost for day in days)
    return {
        "animation": False,
        "textStyle": {"color": GREY},
        "tooltip": {"trigger": "axis"},
        "grid": {"left": 8, "right": 8, "top": 14, "bottom": 8, "containLabel": True},
        "xAxis": {
            "type": "category",
            "data": [day_text(day.day)[5:] for day in days],
            "axisLabel": {"color": GREY},
        },
        "yAxis": {
            "type": "value",
            "axisLabel": {"color": GREY},
            "splitLine": {"lineStyle": {"color": GREY, "opacity": 0.2}},
        },
        "series": [
            {
                "name": "money" if priced else "tokens",
                "type": "bar",
                "barMaxWidth": 32,
                "color": AMBER,
                "data": [round(day.cost, 6) if priced else day.tokens for day in days],
            }
        ],
    }


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
