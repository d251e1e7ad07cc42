"""The paper's figures, shown in tables for comparison (arXiv 2604.04247, read off its figures; DeepSeek-V3.1)."""

from collections.abc import Mapping

from combee_experiments.data.samples import Kind

ENTRIES: Mapping[Kind, Mapping[int, int]] = {
    "formula": {1: 264, 5: 199, 10: 121, 20: 97, 50: 47, 100: 21},
    "finer": {1: 246, 5: 184, 20: 110, 50: 39, 125: 11},
}
"""Naive ACE: batch size → entries in the final playbook."""
ACCURACY: Mapping[Kind, Mapping[int, float]] = {
    "formula": {1: 0.870, 100: 0.725},
    "finer": {1: 0.760, 125: 0.706},
}
"""Naive ACE: batch size → accuracy."""
LIKE: Mapping[Kind, Kind] = {"family": "formula"}
"""The built-in family has Formula's shape, 500 samples of 50 conventions, and is compared with its row."""

TIMES = (
    ("AppWorld, ACE", "sequential", 1, "86 min", "1 ×"),
    ("AppWorld, ACE", "naive", 40, "5 min", "17 ×"),
    ("AppWorld, ACE", "Combee", 40, "7 min", "12 ×"),
    ("Terminal-Bench 2.0", "sequential", 1, "42.4 min", "1 ×"),
    ("Terminal-Bench 2.0", "naive", 30, "2.1 min", "20 ×"),
    ("Terminal-Bench 2.0", "Combee", 30, "2.4 min", "17.7 ×"),
)
"""Task, arm, batch size, time, how much faster than sequential."""

QUALITY = (
    ("AppWorld, ACE", "no learning", "–", "53.3", "–"),
    ("AppWorld, ACE", "sequential", "1", "58.1", "–"),
    ("AppWorld, ACE", "naive", "40", "55.7", "526"),
    ("AppWorld, ACE", "Combee", "40", "65.8", "6,887"),
    ("Terminal-Bench 2.0", "no learning", "–", "32.2", "–"),
    ("Terminal-Bench 2.0", "sequential", "1", "37.9", "–"),
    ("Terminal-Bench 2.0", "naive", "30", "31.0", "–"),
    ("Terminal-Bench 2.0", "Combee", "30", "35.6", "–"),
)
"""Task, arm, batch size, score, tokens of the playbook."""

FIGURE_4 = (
    ("base model", 0.640, 0.666),
    ("Summarization", 0.660, 0.675),
    ("Top-K", 0.720, 0.685),
    ("Combee", 0.845, 0.748),
)
"""Arm, accuracy on Formula, on FiNER, all with GEPA (Figure 4). Top-K and Summarization choose or condense the
reflections before they are aggregated; Combee's batch sizes are 84 and 94."""

SWEEPS: Mapping[Kind, tuple[tuple[str, float, float], ...]] = {
    "formula": (
        ("5", 2978, 0.855),
        ("10", 1892, 0.860),
        ("25", 843, 0.855),
        ("50", 508, 0.81),
        ("100", 360, 0.725),
        ("84, chosen: Combee", 337, 0.845),
    ),
    "finer": (
        ("5", 2890, 0.731),
        ("10", 1565, 0.751),
        ("25", 730, 0.751),
        ("50", 506, 0.723),
        ("100", 449, 0.680),
        ("94, chosen: Combee", 433, 0.748),
    ),
}
"""GEPA: batch size, seconds, accuracy."""


def entries(kind: Kind) -> Mapping[int, int]:
    """Return the paper's row for this kind of data; empty where it has none."""
    return ENTRIES.get(LIKE.get(kind, kind), {})


def accuracy(kind: Kind) -> Mapping[int, float]:
    """Return the paper's accuracies for this kind of data."""
    return ACCURACY.get(LIKE.get(kind, kind), {})


def sweep(kind: Kind) -> tuple[tuple[str, float, float], ...]:
    """Return the paper's sweep of GEPA for this kind of data; empty where it has none."""
    return SWEEPS.get(LIKE.get(kind, kind), ())
