"""Plots of verbs: the libraries are an extra, loaded when a plot is asked for."""

from importlib import import_module
from pathlib import Path
from typing import Any

from combee.adapters.extras import pip_install
from combee.adapters.ports import FatalError

NO_LIBRARY = f"a plot needs {{}}: {pip_install('experiments')}, or leave out --plot"


def library(name: str) -> Any:
    """Return a plotting library.

    Raises
    ------
    FatalError
        If it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise FatalError(NO_LIBRARY.format(name.partition(".")[0])) from error


def new_figure(width: float, height: float) -> Any:
    """Return an empty matplotlib figure, its size in inches; FatalError: matplotlib is not installed."""
    backend = library("matplotlib.backends.backend_agg")
    figure = library("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    backend.FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure as PNG.

    Raises
    ------
    FatalError
        If the file cannot be written.
    """
    try:
        figure.savefig(path, dpi=110, format="png")
    except OSError as error:
        raise FatalError(f"{path} cannot be written: {error.strerror}") from error
