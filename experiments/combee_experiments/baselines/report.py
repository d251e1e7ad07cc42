"""The table and the panel of ``baselines``, for one set of data."""

from collections.abc import Iterator, Mapping
from itertools import pairwise

from combee_experiments.arms.arms import ADAPTIVE, PLAIN
from combee_experiments.data import paper
from combee_experiments.data.samples import Data
from combee_experiments.running.cells import Measured
from combee_experiments.running.report import Panel, Report, Table, Verdict, points_by_arm
from combee_experiments.running.setup import Setup

ALL = 0
"""The batch size of an approach that knows no batches."""
NO_LEARNING, SUMMARIZATION = "no learning", "Summarization"
TOP_K: Mapping[int, str] = {k: f"Top-K, K = {k}" for k in (5, 10)}
COLUMNS = (
    *("approach", "batch size", "lessons kept", "accuracy", "calls", "tokens read", "tokens written"),
    *("stored", "prompt tokens per question"),
)
COUNTED = (
    "Calls and tokens are those of learning from reflections that are there; stored are reflections, lines or "
    "entries; prompt tokens are those of the question with all that an agent is given."
)
BEFORE = (
    "Top-K and Summarization are the paper's: before aggregation. Top-K clusters a batch's reflections (k-medoids on "
    "the words of their insights) and one call aggregates a representative of each cluster; Summarization has one "
    "call summarise the batch and one aggregate the summary. K and the clustering are ours."
)
RETRIEVAL = (
    "Retrieval at inference is ours. It keeps every raw reflection, so it loses nothing and costs no call; what "
    "counts is whether the ones it gives an agent are the right ones. It compares words (rapidfuzz, token_set_ratio) "
    "of the question and of the insight. That is easy on the built-in family and on most Formula questions, which "
    "name what they are about, and hard on FiNER, where a question quotes a sentence and the lesson names a tag."
)
SUMMARIES = (
    "The simulated summariser follows the same law as the aggregator. The other summaries are given to agents as "
    "they are: no playbook is read with them, so they read fewer tokens per call, and side by side the summaries of "
    "different batches say the same things again: nobody compares them. Rewritten, the summary so far is read with "
    "each batch and is lost at the same rate as the rest; a real model might guard it better."
)
READERS = (
    "The stand-in as agent reads a prompt of any length without loss; real agents do not, so long prompts come off "
    "too well here."
)


def report_on(setup: Setup, data: Data, measured: Measured) -> Report:
    """Return what was found on one set of data."""
    table = Table(
        title=f"{data.name}: what each approach keeps, and what it costs",
        columns=COLUMNS,
        rows=tuple(_row(*way) for way in measured.ways()),
        note=COUNTED,
    )
    remarks = (BEFORE, RETRIEVAL, SUMMARIES, READERS) if setup.simulated else (BEFORE, RETRIEVAL)
    return Report(
        tables=(table,),
        verdicts=tuple(_verdicts(data, measured)),
        panels=(_panel(data, measured),),
        remarks=remarks,
    )


def published() -> Report:
    """Return the paper's figures."""
    baselines = Table(
        title="The paper's baselines",
        columns=("arm", "Formula", "FiNER"),
        rows=tuple((arm, *(f"{accuracy:.3f}" for accuracy in found)) for arm, *found in paper.FIGURE_4),
        note="Accuracy with GEPA (Figure 4), a real model that knows much before it learns. The stand-in starts at 0:"
        " compare the order, not the levels.",
    )
    scores = Table(
        title="The paper's scores, for comparison",
        columns=("task", "arm", "batch size", "score", "tokens of the playbook"),
        rows=paper.QUALITY,
        note="Other tasks and a real model.",
    )
    return Report(tables=(baselines, scores))


def _verdicts(data: Data, measured: Measured) -> Iterator[Verdict]:
    """Decide for each batch size whether another approach is better, and whether the order is the paper's."""
    for size in measured.where(ADAPTIVE.name).values("batch_size"):
        ours = measured.where(ADAPTIVE.name, batch_size=size).spread("accuracy")
        rivals = {
            approach: found.spread("accuracy")
            for approach, at, found in measured.ways()
            if at in (size, ALL) and not approach.startswith("Combee")
        }
        best = max(rivals, key=lambda approach: rivals[approach].mean)
        its = rivals[best]
        yield Verdict(
            criterion=f"{data.name}: {ADAPTIVE.name} at {size} is at least as accurate as every other approach",
            met=ours.mean >= its.mean,
            told=f"{ours.told(3)}; the best other, {best}: {its.told(3)}",
        )
        chosen = (measured.where(name, batch_size=size).spread("accuracy") for name in TOP_K.values())
        order = {
            NO_LEARNING: measured.where(NO_LEARNING).spread("accuracy"),
            SUMMARIZATION: measured.where(SUMMARIZATION, batch_size=size).spread("accuracy"),
            "Top-K, the better K": max(chosen, key=lambda spread: spread.mean),
            PLAIN.name: measured.where(PLAIN.name, batch_size=size).spread("accuracy"),
        }
        yield Verdict(
            criterion=f"{data.name}: at {size} the order of the paper's Figure 4: {' < '.join(order)}",
            met=all(one.mean < other.mean for one, other in pairwise(order.values())),
            told=", ".join(spread.told(3) for spread in order.values()),
        )


def _row(approach: str, size: int, measured: Measured) -> tuple[str, ...]:
    return (
        approach,
        str(size) if size else "–",
        measured.spread("lessons").told(),
        measured.spread("accuracy").told(2),
        *(measured.spread(name).told(0) for name in ("calls", "tokens_in", "tokens_out", "stored")),
        measured.spread("prompt_tokens").told(0),
    )


def _panel(data: Data, measured: Measured) -> Panel:
    points = points_by_arm(measured, "prompt_tokens", "accuracy")
    return Panel(title=data.name, x="prompt tokens per question", y="accuracy", series=points, log_x=True)
