"""Panels drawn into one PNG; matplotlib is loaded here, when it is needed, and nowhere else."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from combee.adapters.ports import FatalError
from combee_experiments.running.report import Panel, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 3
PANEL_INCHES = (5.2, 3.8)
NO_MATPLOTLIB = "plots need matplotlib: install combee[experiments], or add --no-plot"


def require() -> None:
    """Refuse before anything is measured, where nothing could be drawn afterwards.

    Raises
    ------
    FatalError
        If matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise FatalError(NO_MATPLOTLIB)


def draw(panels: Sequence[Panel], title: str, path: Path) -> None:
    """Write all panels of an experiment as one picture.

    Raises
    ------
    FatalError
        If matplotlib is not installed.
    """
    require()
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - an extra, and slow
    from matplotlib.figure import Figure  # noqa: PLC0415

    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(columns * PANEL_INCHES[0], rows * PANEL_INCHES[1]), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    for number, panel in enumerate(panels, 1):
        _panel(figure.add_subplot(rows, columns, number), panel)
    # Nothing in the file says when: the same numbers make the same picture.
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _panel(axes: "Axes", panel: Panel) -> None:
    from matplotlib.ticker import NullFormatter, ScalarFormatter  # noqa: PLC0415

    axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
    for series in panel.series:
        _series(axes, series)
    if panel.log_x:
        axes.set_xscale("log")
    lines = (series for series in panel.series if series.style == "line")
    if places := sorted({place for series in lines for place, _ in series.points}):
        axes.set_xticks(places)
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(ScalarFormatter())
    if panel.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_formatter(ScalarFormatter())
    else:
        axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="best", fontsize="small", framealpha=0.5)


def _series(axes: "Axes", series: Series) -> None:
    places = [place for place, _ in series.points]
    means = [spread.mean for _, spread in series.points]
    if series.style == "paper":
        axes.plot(places, means, "k--", marker="x", label=series.name)
        return
    # The mean of equal numbers may be off by a rounding, and a bar of negative length is refused.
    below = [max(0.0, spread.mean - spread.low) for _, spread in series.points]
    above = [max(0.0, spread.high - spread.mean) for _, spread in series.points]
    style: dict[str, Any] = {"linestyle": "none"} if series.style == "points" else {}
    axes.errorbar(places, means, yerr=[below, above], marker="o", capsize=3, label=series.name, **style)
