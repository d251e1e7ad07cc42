"""``coverage``: what the playbook keeps, whatever the model reports about what it overlooked.

Not the whole product of what can fail is run. The paper's arms have no check, so only the ways of overload and the
wordings vary there; Combee without its check is run for its cost, in one way. By what lessons are recognised can
matter in several wordings alone, and is compared where all ways of overload are mixed; so is a checker that also
denies what statements say.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

from combee.adapters.ports import FatalError
from combee_experiments.arms.arms import ADAPTIVE, ARMS, NAIVE, PLAIN
from combee_experiments.coverage.measuring import Circumstances
from combee_experiments.coverage.measuring import measure as measured_in
from combee_experiments.coverage.report import (
    NOTHING_LOST,
    PARAPHRASED,
    UNCHECKED,
    VERBATIM,
    WORDS_ALONE,
    WORDS_AND_CHECK,
    report_on,
)
from combee_experiments.data.samples import Data, Kind
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Report, joined
from combee_experiments.running.setup import Setup
from combee_sim.law.rules import IN_FORCE
from combee_sim.modes import NO_MODES, NOTICED, OVERLOAD, Modes

BATCH: Mapping[Kind, int] = {"formula": 100, "finer": 125}
"""Batch size by kind of data; others have Formula's."""
ERRS = (0.0, 0.1, 0.3)
FREE = "paraphrased, every repeat noticed"
WORDINGS: Mapping[str, float | None] = {VERBATIM: None, PARAPHRASED: NOTICED, FREE: 1.0}
"""Wordings → probability that a call merges two wordings; None: one wording."""
BY_NAME = {**ARMS, UNCHECKED: replace(ADAPTIVE, name=UNCHECKED, carry=False)}


@dataclass(frozen=True, slots=True)
class By:
    """By what a lesson is recognised."""

    checks: bool
    embeds: bool


COMPARED: Mapping[str, By] = {
    WORDS_ALONE: By(checks=False, embeds=False),
    WORDS_AND_CHECK: By(checks=True, embeds=False),
    "embeddings": By(checks=False, embeds=True),
    "embeddings and check": By(checks=True, embeds=True),
}


def cells(setup: Setup) -> Iterator[Cell]:
    """The paper's arms and Combee in every way of overload, then by what lessons are recognised, then no overload.

    Raises
    ------
    FatalError
        If a rule or modes were asked for: this experiment chooses them.
    """
    if (setup.law, setup.modes) != (IN_FORCE, NO_MODES):
        raise FatalError("coverage goes through the ways of overload itself: leave out --law and --mode")
    for data in setup.data:
        for overload, words in product(OVERLOAD, (VERBATIM, PARAPHRASED)):
            for arm in (NAIVE.name, PLAIN.name, *([UNCHECKED] if overload == OVERLOAD[0] else [])):
                yield from _cells(setup, data, arm, overload, words)
            for rate in ERRS:
                yield from _cells(setup, data, ADAPTIVE.name, overload, words, false_yes=rate)
        yield from _mixed(setup, data)
        for by in COMPARED:
            yield from _cells(setup, data, ADAPTIVE.name, OVERLOAD[0], FREE, by=by, law=NOTHING_LOST)


def _mixed(setup: Setup, data: Data) -> Iterator[Cell]:
    """Yield what is compared where all ways of overload are mixed."""
    mixed, ours = OVERLOAD[-1], ADAPTIVE.name
    for words, rate in product((VERBATIM, PARAPHRASED), ERRS[1:]):
        yield from _cells(setup, data, ours, mixed, words, false_yes=rate, false_no=rate)
    for by in COMPARED:
        for rate in ERRS if COMPARED[by].checks else ERRS[:1]:
            if by != WORDS_AND_CHECK:
                yield from _cells(setup, data, ours, mixed, PARAPHRASED, false_yes=rate, by=by)


def _cells(
    setup: Setup,
    data: Data,
    arm: str,
    overload: str,
    words: str,
    *,
    false_yes: float = 0.0,
    false_no: float = 0.0,
    by: str = WORDS_AND_CHECK,
    law: str = IN_FORCE,
) -> Iterator[Cell]:
    errs = {"false_yes": false_yes, "false_no": false_no}
    for seed in setup.seeds:
        yield Cell.of(arm, seed, data=data.name, overload=overload, wording=words, by=by, law=law, **errs)


def measure(setup: Setup, cell: Cell) -> Numbers:
    """Learn from all samples on a stand-in that fails as the cell says."""
    data, by = setup.named(cell.text("data")), COMPARED[cell.text("by")]
    failing = Circumstances(
        batch_size=min(BATCH.get(data.kind, BATCH["formula"]), len(data.train)),
        law=cell.text("law"),
        modes=Modes(
            overload=next(name for name in OVERLOAD if name == cell.text("overload")),
            false_yes=float(cell.text("false_yes")),
            false_no=float(cell.text("false_no")),
            paraphrase=WORDINGS[cell.text("wording")],
        ),
        checks=by.checks,
        embeds=by.embeds,
    )
    return measured_in(setup, data, BY_NAME[cell.arm], cell.seed, failing)


def report(setup: Setup, measured: Measured) -> Report:
    """Compare with the criteria."""
    return joined(report_on(data, measured.where(data=data.name)) for data in setup.data)
