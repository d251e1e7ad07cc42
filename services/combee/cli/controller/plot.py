"""The controller's delays as pictures: epoch seconds by batch size, the fit, and what was chosen."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from combee.core.sizing.plateau import EPOCH, PowerLaw, epoch_s
from combee.ports import FatalError
from combee_schemas.control import BatchSize

STEPS = 40
COLUMNS, ROWS = 72, 18
TITLE = "seconds per {:,} reflections, by batch size"
NO_LIBRARY = "this picture needs {}: pip install 'combee[experiments]'"


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise FatalError(NO_LIBRARY.format(name.partition(".")[0])) from error


def _points(stands: BatchSize) -> tuple[list[int], list[float]]:
    sizes = [one.batch_size for one in stands.observations]
    return sizes, [epoch_s(one.batch_size, one.delay_s) for one in stands.observations]


def _curve(law: PowerLaw, sizes: Sequence[int], chosen: int) -> tuple[list[float], list[float]]:
    low, high = min(*sizes, chosen), max(*sizes, chosen)
    at = [low * (high / low) ** (step / (STEPS - 1)) for step in range(STEPS)]
    return at, [law.at(one) for one in at]


def draw(stands: BatchSize, law: PowerLaw | None) -> str:
    """Return a plot in characters.

    Raises
    ------
    FatalError
        If plotext is not installed.
    """
    plot = _library("plotext")
    plot.clear_figure()
    plot.theme("clear")
    plot.plotsize(COLUMNS, ROWS)
    plot.title(TITLE.format(EPOCH))
    sizes, seconds = _points(stands)
    if law is not None:
        plot.plot(*_curve(law, sizes, stands.batch_size), marker="dot", label="fit")
        plot.scatter([stands.batch_size], [law.at(stands.batch_size)], marker="X", label="chosen")
    plot.scatter(sizes, seconds, marker="o", label="measured")
    return str(plot.build())


def drawn(stands: BatchSize, law: PowerLaw | None, path: Path) -> None:
    """Write the same as a PNG.

    Raises
    ------
    FatalError
        If matplotlib is not installed, or the file cannot be written.
    """
    backend, figure = (
        _library("matplotlib.backends.backend_agg"),
        _library("matplotlib.figure").Figure(figsize=(7, 4.5)),
    )
    backend.FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    sizes, seconds = _points(stands)
    axes.scatter(sizes, seconds, color="black", zorder=3, label="measured")
    if law is not None and sizes:
        fitted = f"fit: α {law.alpha:.2f}, R² {law.r_squared:.2f}"
        axes.plot(*_curve(law, sizes, stands.batch_size), label=fitted)
    axes.axvline(stands.batch_size, color="tab:red", linestyle="--", label=f"chosen: {stands.batch_size}")
    title = f"{stands.playbook}: {TITLE.format(EPOCH)}"
    # Linear: that the curve flattens is the point.
    axes.set(title=title, xlabel="batch size", ylabel="seconds", ylim=(0, None))
    axes.legend()
    try:
        figure.savefig(path, dpi=110, format="png")
    except OSError as error:
        raise FatalError(f"{path} cannot be written: {error.strerror}") from error
