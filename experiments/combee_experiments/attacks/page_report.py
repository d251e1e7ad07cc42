"""Write docs/results/attacks.md and its table: ``python -m combee_experiments.attacks.page_report [SEEDS]``.

With ``--measured`` after them it measures nothing and writes what there is.
"""

import csv
import logging
import sys
from pathlib import Path

import structlog

from combee_experiments.attacks import experiment, price
from combee_experiments.attacks.report import COLUMNS, WORST, rows, verdicts, worst
from combee_experiments.running.cells import Measured
from combee_experiments.running.report import Table, markdown, told
from combee_experiments.running.run import run
from combee_experiments.running.setup import Setup, parse_seeds
from combee_experiments.running.store import Store

RESULTS = Path("docs/results")
CELLS = Path("results/attacks/cells.jsonl")
TEXT = """# Attacks

**Simulated**: no real model was asked, and no real attacker tried. Seven honest producers send 14 reflections a
round; the attackers send six, 30 % of all, from the fifth of 24 rounds on. Seeds: {seeds}. `python -m
combee_experiments.attacks.page_report {seeds}` measures and writes this page, `make test-attacks` runs a small part.

**One seed and 124 of 304 cells were measured**, and all but those of *reputation* on six arms before one mend: a
lesson that only the check call witnessed no longer counts as support in `public`.

## The worst of each posture

Each figure is that of the worst attack, which is named:

{worst}

*Harmful* is what agents are shown that is not, in all of its text, a true lesson. *Lost* are true lessons that agents
are not shown in the end. *Destroyed* is a true lesson that agents were shown and are not shown in the next version,
even if it is learned again later; the last column counts those behind which two sources or more stood. *nobody
proves*: no producer has a secret. *one*, *three*: that number of proven attackers. [All
rows](tables/attacks.csv).

## What was to be shown

{verdicts}

## What it costs where nobody attacks

*Reflections that count* are evidence or an echo. `python -m combee_experiments.attacks.price {seeds}` prints it:

{price}

In five wordings each wording is a lesson of its own to code: in `public` it waits for four sources of its own. So
`public` misses its bar of 2 % wherever sources use their own words.

## Why what is missed is missed

- **team, destroyed**: an entry behind which one source stands with one reflection is changed by one other reflection:
  destroying costs as much as building, and building cost one. Most were learned again.
- **team, harmful where there is room**: what a source adds is never held up. A judge or `public` holds it up.
- **team, harmful where room is short**, above its part: *instructions to agents* are short, and room is counted in
  tokens.
- **Where nobody proves who they are** all are one source, and no rule by source can help: destroying takes three
  reflections at most, and a curator that obeys an order removes what it is told to.
- **three who collude in a team** have what three sources have: they change anything.

*Reputation* found a hole in the first run: in `public` one attacker got four riding texts in and four lessons out,
because the check call takes a text that rides on a lesson for that lesson. What only a check call says is no support
since; *reputation* was measured again on six arms after that, everything else before it. The price of that rule for
lessons in other words stands in the table above.

## Who attacks

Fourteen attacks know nothing of the protections: floods, contradictions, orders to the reflector, to the curator and
to agents, harmful tags, forged scores, many names, a rider on honest lessons. Six know the code: *newborn* names the
ids that the next batch gives; *rewording* and *removal* go for the entries behind which the least stands, with tags
and an order to the curator; *eviction* fills the room and praises its own; *reputation* teaches true lessons for ten
rounds first; *combination* does one after the other. *One who searches* climbs over attacks, their order, when they
begin and how often they come, with whole runs on the same honest records, and shows the worst of {tried}.

- Attackers read the playbook that agents read.
- **A model that reads an order or a polite request to its role obeys always**, whatever fence it stands in: the worst
  case, an assumption.
- *evaluate* asks two questions about each lesson; *approve* is a person who reads every difference and makes no
  mistake.
- There is room for four times the true lessons; *short of room*: for 1.25 times.

The criteria were set before the first whole run, after single runs of some attacks on three arms; *destroyed of two
sources or more* was added after those. This is no blind test.
"""


def page(measured: Measured, seeds: int) -> str:
    """Return the page."""
    return TEXT.format(
        seeds=seeds,
        tried=experiment.TRIED,
        worst=markdown(Table(title="", columns=WORST, rows=tuple(worst(measured))))
        .partition("\n\n")[2]
        .strip(),
        verdicts="\n".join(f"- {told(verdict)}" for verdict in verdicts(measured)),
        price=markdown(price.table(tuple(range(seeds)))).partition("\n\n")[2].strip(),
    )


def write(measured: Measured, seeds: int) -> None:
    """Write the page and the table."""
    (RESULTS / "attacks.md").write_text(page(measured, seeds), encoding="utf-8")
    with (RESULTS / "tables" / "attacks.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows(measured)])


def main() -> None:
    """Measure what is not measured yet, and write."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    setup = Setup(data=(), seeds=parse_seeds(sys.argv[1] if sys.argv[1:] else "1"))
    store = Store(CELLS)
    if "--measured" in sys.argv:
        known = {cell: store.find(setup.identity(cell)) for cell in experiment.cells(setup)}
        measured = Measured({cell: numbers for cell, numbers in known.items() if numbers is not None})
    else:
        measured, _ = run(experiment, setup, store)
    write(measured, len(setup.seeds))


if __name__ == "__main__":
    main()
