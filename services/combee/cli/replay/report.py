"""Results of variants compared with the original, as a table and a plot."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

from rich.table import Table

from combee.cli.shared.plotting import new_figure, save_figure
from combee.log.reports.replay import RunReport

OFF_POLICY = "off-policy: the agents behind these reflections had read the original playbook, not a variant's"


def table(rows: Sequence[RunReport]) -> Table:
    """Return the runs of each variant in one line: means over its seeds.

    ``new`` to ``omitted`` count reflections, ``read`` to ``written`` tokens.
    """
    is_scored = any(row.is_scored for row in rows)
    shown = Table(
        *("variant", "seeds", "entries", "added", "gone", "changed", "new", "known", "dropped", "omitted"),
        *("calls", "paid", "read", "cached", "written", "seconds", "stale (s)"),
        *(("score", "− original (95 %)") if is_scored else ()),
        box=None,
    )
    for column in shown.columns:
        column.no_wrap = True
    for name in dict.fromkeys(row.variant for row in rows):
        runs = [row for row in rows if row.variant == name]
        cells = [name, "" if runs[0].seed is None else str(len(runs)), *_counts(runs)]
        shown.add_row(*cells, *(_scores(runs) if is_scored else ()))
    return shown


def _counts(runs: Sequence[RunReport]) -> Iterator[str]:
    entries = [run.entries for run in runs]
    yield _mean(entry.count for entry in entries)
    for name in ("added", "gone", "changed"):
        yield _mean(len(getattr(entry, name)) for entry in entries)
    for name in ("new", "known", "dropped", "omitted"):
        yield _mean(getattr(run.audit, name) for run in runs)
    yield _mean(run.model_calls for run in runs)
    yield _mean(run.model_calls - run.reused_calls for run in runs)
    for name in ("in", "cached", "out"):
        yield _mean(run.tokens[name] for run in runs)
    for name in ("seconds", "staleness_s"):
        known = [known for run in runs if (known := getattr(run, name)) is not None]
        yield f"{fmean(known):,.1f}" if known else ""


def _mean(values: Iterator[float]) -> str:
    mean = fmean(values)
    return f"{mean:,.0f}" if mean == round(mean) else f"{mean:,.1f}"


def _scores(runs: Sequence[RunReport]) -> Iterator[str]:
    yield f"{fmean(run.score for run in runs):.3f}"
    if len(runs) == 1 and runs[0].is_compared:
        (run,) = runs
        yield f"{run.difference:+.3f} ({run.difference_low:+.3f} to {run.difference_high:+.3f})"
    elif runs[0].is_compared:
        differences = [run.difference for run in runs]
        yield f"{fmean(differences):+.3f} (seeds: {min(differences):+.3f} to {max(differences):+.3f})"
    else:
        yield ""


def plot(rows: Sequence[RunReport], path: Path) -> None:
    """Draw entries, tokens and scores of each variant, a dot per seed."""
    measures: dict[str, Callable[[RunReport], float]] = {
        "entries": lambda row: row.entries.count,
        "reflections omitted": lambda row: row.audit.omitted,
        "tokens": lambda row: row.tokens["in"] + row.tokens["out"],
    }
    if all(row.is_scored for row in rows):
        measures["score"] = lambda row: row.score
    names = list(dict.fromkeys(row.variant for row in rows))
    figure = new_figure(3.2 * len(measures), 3.2)
    for place, (title, measure) in enumerate(measures.items(), 1):
        axes = figure.add_subplot(1, len(measures), place)
        axes.plot([names.index(row.variant) for row in rows], [measure(row) for row in rows], "o")
        axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
        axes.set_ylim(bottom=0)
        axes.set_title(title)
    save_figure(figure, path)
