"""Results of variants compared with the original, as rows, text and a plot."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.table import Table

from combee.cli.shared.plotting import new_figure, save_figure
from combee.core.evaluation.intervals import paired
from combee.core.log.replaying.outcome import compared, spent
from combee.core.playbook.retention import total
from combee.log.evaluation.evaluator import Evaluated
from combee_schemas.playbook import Playbook

OFF_POLICY = "off-policy: the agents behind these reflections had read the original playbook, not a variant's"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run, or the original."""

    variant: str
    seed: int | None
    prefix: str
    versions: Sequence[Playbook]
    newest: Playbook
    staleness_s: float | None
    seconds: float | None
    evaluated: Evaluated | None


def as_row(row: Row, original: Row) -> dict[str, Any]:
    """Return the stable shape of one run in ``replay --json``."""
    usage = spent(row.versions)
    audit = total(version.audit for version in row.versions if version.audit)
    entries = compared(original.newest, row.newest)
    scored: dict[str, Any] = {}
    if row.evaluated is not None:
        score = row.evaluated.score
        scored = {
            "score": _rounded(score.mean),
            "score_low": _rounded(score.low),
            "score_high": _rounded(score.high),
        }
        if original.evaluated is not None and row is not original:
            difference = paired(row.evaluated.points, original.evaluated.points)
            scored |= {
                "difference": _rounded(difference.mean),
                "difference_low": _rounded(difference.low),
                "difference_high": _rounded(difference.high),
            }
    return {
        "variant": row.variant,
        "seed": row.seed,
        "prefix": row.prefix,
        "batches": len(row.versions),
        "reflections": sum(version.reflections for version in row.versions),
        "entries": {
            "count": len(row.newest.entries),
            "kept": entries.kept,
            "added": list(entries.added),
            "gone": list(entries.gone),
            "changed": [{"before": before, "after": after} for before, after in entries.changed],
        },
        "audit": audit.model_dump(),
        "model_calls": usage.calls,
        "reused_calls": usage.reused,
        "tokens": usage.tokens(),
        "reused_tokens": usage.reused_tokens,
        "seconds": None if row.seconds is None else _rounded(row.seconds),
        "staleness_s": None if row.staleness_s is None else _rounded(row.staleness_s),
        **scored,
    }


def _rounded(value: float) -> float:
    return round(value, 4)


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the runs of each variant in one line: means over its seeds.

    ``new`` to ``omitted`` count reflections, ``read`` to ``written`` tokens.
    """
    is_scored = any("score" in row for row in rows)
    shown = Table(
        *("variant", "seeds", "entries", "added", "gone", "changed", "new", "known", "dropped", "omitted"),
        *("calls", "paid", "read", "cached", "written", "seconds", "stale (s)"),
        *(("score", "− original (95 %)") if is_scored else ()),
        box=None,
    )
    for column in shown.columns:
        column.no_wrap = True
    for name in dict.fromkeys(row["variant"] for row in rows):
        runs = [row for row in rows if row["variant"] == name]
        cells = [name, "" if runs[0]["seed"] is None else str(len(runs)), *_counts(runs)]
        shown.add_row(*cells, *(_scores(runs) if is_scored else ()))
    return shown


def _counts(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    entries = [run["entries"] for run in runs]
    yield _mean(entry["count"] for entry in entries)
    for name in ("added", "gone", "changed"):
        yield _mean(len(entry[name]) for entry in entries)
    for name in ("new", "known", "dropped", "omitted"):
        yield _mean(run["audit"][name] for run in runs)
    yield _mean(run["model_calls"] for run in runs)
    yield _mean(run["model_calls"] - run["reused_calls"] for run in runs)
    for name in ("in", "cached", "out"):
        yield _mean(run["tokens"][name] for run in runs)
    for name in ("seconds", "staleness_s"):
        known = [run[name] for run in runs if run[name] is not None]
        yield f"{fmean(known):,.1f}" if known else ""


def _mean(values: Iterator[float]) -> str:
    mean = fmean(values)
    return f"{mean:,.0f}" if mean == round(mean) else f"{mean:,.1f}"


def _scores(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"{fmean(run['score'] for run in runs):.3f}"
    if len(runs) == 1 and "difference" in runs[0]:
        (run,) = runs
        yield f"{run['difference']:+.3f} ({run['difference_low']:+.3f} to {run['difference_high']:+.3f})"
    elif "difference" in runs[0]:
        differences = [run["difference"] for run in runs]
        yield f"{fmean(differences):+.3f} (seeds: {min(differences):+.3f} to {max(differences):+.3f})"
    else:
        yield ""


def plot(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw entries, tokens and scores of each variant, a dot per seed."""
    measures: dict[str, Callable[[Mapping[str, Any]], float]] = {
        "entries": lambda row: row["entries"]["count"],
        "reflections omitted": lambda row: row["audit"]["omitted"],
        "tokens": lambda row: row["tokens"]["in"] + row["tokens"]["out"],
    }
    if all("score" in row for row in rows):
        measures["score"] = lambda row: row["score"]
    names = list(dict.fromkeys(row["variant"] for row in rows))
    figure = new_figure(3.2 * len(measures), 3.2)
    for place, (title, measure) in enumerate(measures.items(), 1):
        axes = figure.add_subplot(1, len(measures), place)
        axes.plot([names.index(row["variant"]) for row in rows], [measure(row) for row in rows], "o")
        axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
        axes.set_ylim(bottom=0)
        axes.set_title(title)
    save_figure(figure, path)
