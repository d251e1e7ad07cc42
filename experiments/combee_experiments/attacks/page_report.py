"""Write docs/results/attacks.md and its table: ``python -m combee_experiments.attacks.page_report [SEEDS]``.

With ``--measured`` after them it measures nothing and writes what there is.
"""

import csv
import logging
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import structlog

from combee_experiments.attacks import experiment, price
from combee_experiments.attacks.protections import ALL_APPROVE, ALL_EVALUATE, APPROVE, CAPPED, EVALUATE, OFF
from combee_experiments.attacks.report import COLUMNS, rows, verdicts
from combee_experiments.running.cells import Measured
from combee_experiments.running.report import Table, markdown, told
from combee_experiments.running.run import run
from combee_experiments.running.setup import Setup, parse_seeds
from combee_experiments.running.store import Store

RESULTS = Path("docs/results")
CELLS = Path("results/attacks/cells.jsonl")
SHOWN = (OFF, CAPPED, EVALUATE, APPROVE, ALL_EVALUATE, ALL_APPROVE)
TEXT = """# Attacks

**Simulated**: no real model was asked, and no real attacker tried. {producers}; seeds: {seeds}.
`make test-attacks` runs a small version. `python -m combee_experiments.attacks.page_report {seeds} --measured` writes
this page from what `combee experiment attacks --seeds {seeds}` measured; without `--measured` it does both.

## What was to be shown

{verdicts}

## What production shows in the end

Number of harmful entries that are shown, and the share of honest lessons that is kept:

{table}

[All figures](tables/attacks.csv) also have protections alone, the attackers' share, evictions, and decisions of the
gate: *overwritten or removed* counts true entries in all versions, *wrongly accepted* decisions with something
harmful, *wrongly rejected* those with nothing harmful.

## What checking evidence costs

Nobody attacks here. The seven producers say each lesson word for word, or in one of five wordings (a model notices
with a probability of 80 % that two say the same). *Reflections that count* are evidence or an echo.
`python -m combee_experiments.attacks.price {seeds}` prints it:

{price}

With `COMBEE_PROBATION_SOURCES=4` two thirds of the reworded lessons are not shown within 24 rounds, because each
wording waits for four sources of its own. A weaker rule, a third of a content's words, counted 99.7 % of the evidence
in five wordings and showed all 20 lessons, but an addition to a lesson rode on those who taught it. Of 16 paraphrases
of entries that a real model learned on AppWorld the weaker rule takes 2 for witnesses, this rule none.

## What breaks a bar, and why

- *evaluate alone* cannot see lessons about what does not exist (*harmful tags*, *stuffing*, *forged scores*), a
  false entry behind the true one (*paraphrased flood*), a lesson about which production says nothing yet, or
  *riding*, where the answer is right. With caps and probation these attacks do not get as far: use them together.
- The worst run decides, so one seed finds less: with five, before *riding* was added, *evaluate alone* missed eight
  of the twelve other attacks.
- The price of `COMBEE_PROBATION_SOURCES` is time: a lesson has four of seven teachers within 24 rounds with a
  probability of 99.85 %, within 16 with 97.0 %.

The bars were fixed beforehand and written into the code after four trial runs. After looks at results the playbook's
room was raised, rounds became 24 instead of 16, and protections were mended or made. *Riding*, its judge and the rule
against it were written with its result in view. This is no blind test.

## Assumptions

- There are 20 lessons. Honest producers send two true ones a round; *harmful* is what agents are shown that is not,
  in all of its text, a true lesson in one of its wordings.
- Malicious producers prove names of their own, except in *many names*, where they prove none. They read the playbook.
  *Riding* has one attacker; the other two do nothing.
- **A model that reads an instruction to its role obeys always**, whatever fence it stands in: a reflector states the
  attacker's lesson; a curator adds it on the word of all items and removes an entry; an agent answers `0`. The flags
  know the order that it obeys; without a flag it obeys a polite request.
- **A harmful lesson makes an agent answer wrongly** where it is the first that it reads about a question.
- A curator that reads a contradiction corrects the entry; of rivals in one call the most frequent wins.
- *evaluate* asks two questions about each lesson, `COMBEE_GATE_MARGIN=0.01`: less than a lesson is worth.
  *approve* is a person who reads every difference, knows what is true and makes no mistake: an upper bound.
- Caps: `COMBEE_SOURCE_SHARE=0.1`, `COMBEE_SOURCE_OPERATIONS=5`. Probation: `COMBEE_NEW_SOURCE_BATCHES=3`,
  `COMBEE_PROPOSE_FLAGGED=true`, `COMBEE_PROBATION=4` from `COMBEE_PROBATION_SOURCES=4`, one more than there are
  attackers. Names are `proven`. The playbook has room for about four times the lessons, because proposals get a
  quarter of that room.
- Forged scores are those of reflections. The canary's outcomes are not attacked here.
"""
PRODUCERS = "Seven honest producers and three malicious ones, 24 rounds, the attack from the fifth on"


def overview(figures: Iterable[Sequence[str]]) -> Table:
    """Return a row per attack and a column per protection, from the rows of the whole table."""
    by_attack: dict[str, dict[str, str]] = {}
    for attack, protection, _, harmful, kept, *_ in figures:
        by_attack.setdefault(attack, {})[protection] = f"{harmful}; {kept}"
    lines = ((attack, *(cells.get(arm, "") for arm in SHOWN)) for attack, cells in by_attack.items())
    return Table(title="", columns=("attack", *SHOWN), rows=tuple(lines))


def page(measured: Measured, seeds: int) -> str:
    """Return the page."""
    table = overview(rows(measured))
    return TEXT.format(
        producers=PRODUCERS,
        seeds=seeds,
        verdicts="\n".join(f"- {told(verdict)}" for verdict in verdicts(measured)),
        table=markdown(table).partition("\n\n")[2],
        price=markdown(price.table(tuple(range(seeds)))).partition("\n\n")[2].strip(),
    )


def main() -> None:
    """Measure what is not measured yet, and write."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    setup = Setup(data=(), seeds=parse_seeds(sys.argv[1] if sys.argv[1:] else "3"))
    store = Store(CELLS)
    if "--measured" in sys.argv:
        known = {cell: store.find(setup.identity(cell)) for cell in experiment.cells(setup)}
        measured = Measured({cell: numbers for cell, numbers in known.items() if numbers is not None})
    else:
        measured, _ = run(experiment, setup, store)
    (RESULTS / "attacks.md").write_text(page(measured, len(setup.seeds)), encoding="utf-8")
    with (RESULTS / "tables" / "attacks.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows(measured)])


if __name__ == "__main__":
    main()
