"""Check, or fit anew, the stand-in's context-overload law against naive ACE (docs/design/simulation.md).

Run as: python -m benchmarks.fit_overload [formula_train.jsonl] [--law RULE] [--refit] [--sensitivity] [--seeds N]
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean

from benchmarks.law_fit import (
    MEAN_ALLOWED,
    WORST_ALLOWED,
    Point,
    fit,
    points,
    run_all,
    run_naive,
    run_two_levels,
    within_bounds,
)
from combee_schemas.reflection import Reflection
from combee_sim.family.knowledge import read_knowledge
from combee_sim.law.rules import IN_FORCE, RULES
from combee_sim.law.samples import FAMILY_SIZE, family_traces, reflections_on, task_traces

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "formula_train.jsonl"
SAMPLES = 500
BATCH_SIZES = (20, 40, 100)


def main() -> int:
    """Print the row as the simulated model reproduces it; 1 when it is out of bounds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", nargs="?", type=Path, default=DATA, help="formula_train.jsonl")
    parser.add_argument("--refit", action="store_true", help="search for the constants again")
    parser.add_argument("--law", choices=RULES, default=IN_FORCE, help="the counting rule")
    parser.add_argument("--seeds", type=int, default=5, help="runs to average over")
    parser.add_argument("--sensitivity", action="store_true", help="what hangs on what is counted")
    asked = parser.parse_args()
    reflections = _reflections(asked.data)
    seeds = range(asked.seeds)
    if asked.sensitivity:
        return _sensitivity(reflections, seeds)
    law = RULES[asked.law]
    if asked.refit:
        law = fit(reflections, seeds=seeds, start=law)
    print(
        f"f(T) = 1 / (1 + (T / {law.half_tokens:.0f})^{law.steepness:.3f}), {asked.seeds} seeds, simulated\n"
    )
    row = points(run_all(reflections, seeds=seeds, law=law))
    _print_row(row)
    return 0 if within_bounds(row) else 1


def _reflections(path: Path) -> tuple[Reflection, ...]:
    if not path.exists():
        print(f"{path.name} is absent: the built-in family's first {FAMILY_SIZE} quantities stand in for it.")
        return reflections_on(family_traces(Random(0), SAMPLES))  # noqa: S311 - reproducible, not secret
    known = read_knowledge(path)
    traces = task_traces([(row.question, row.target) for row in known.rows])
    reflections = reflections_on(traces, knowledge=known)
    distinct = len({reflection.key_insight for reflection in reflections})
    print(f"{path.name}: {len(reflections)} simulated reflections, {distinct} distinct lessons.")
    return reflections


def _print_row(row: Sequence[Point]) -> None:
    print(
        "| batch size | distinct lessons read | tokens counted | kept | entries per update | wanted | off |"
    )
    print("|---|---|---|---|---|---|---|")
    for point in row:
        kept = point.entries / point.distinct
        print(
            f"| {point.batch_size} | {point.distinct:.1f} | {point.tokens:.0f} | {kept:.2f} "
            f"| {point.entries:.2f} | {point.wanted:.2f} | {point.error:+.0%} |"
        )
    errors = [abs(point.error) for point in row]
    mean = sum(errors) / len(errors)
    print(
        f"\nworst {max(errors):.0%} (allowed {WORST_ALLOWED:.0%}), mean {mean:.0%} (allowed {MEAN_ALLOWED:.0%})"
    )


def _sensitivity(reflections: Sequence[Reflection], seeds: Sequence[int]) -> int:
    """Fit the law to the naive row under each way of counting, then look at two levels; all simulated."""
    print("| tokens counted | law | worst, mean off | batch size | two levels: entries per update | naive |")
    print("|---|---|---|---|---|---|")
    for name, known in RULES.items():
        law = fit(reflections, seeds=seeds, start=replace(RULES[IN_FORCE], count=known.count))
        errors = [abs(point.error) for point in points(run_all(reflections, seeds=seeds, law=law))]
        off = f"{max(errors):.0%}, {sum(errors) / len(errors):.0%}"
        shown = f"{name} | {law.half_tokens:.0f}, {law.steepness:.3f} | {off}"
        for size in BATCH_SIZES:
            tree = [n for s in seeds for n in run_two_levels(reflections, size, seed=s, law=law)[0]]
            naive = [c.entries for s in seeds for c in run_naive(reflections, size, seed=s, law=law)[0]]
            print(f"| {shown} | {size} | {fmean(tree):.1f} | {fmean(naive):.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
