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
combee_experiments.attacks.page_report {seeds}` measures and writes this page in some 5 minutes a seed on one free
core; `make test-attacks` runs a small part. **{measured} of {planned} cells are measured.**

## The worst of each posture

Each figure is that of the worst attack, which is named:

{worst}

*Harmful* is what agents are shown that is not, in all of its text, a true lesson. *Lost* are true lessons that
agents are not shown in the end. *Destroyed* is a true lesson that agents were shown and are not shown in the next
version, even if it is learned again later; the last column counts those behind which two sources or more stood.
*nobody proves*: no producer has a secret. *one*, *three*: that number of proven attackers. [All
rows](tables/attacks.csv).

## What was to be shown

{verdicts}

The criterion of room counts tokens, as room does. It was changed after runs that passed the bar: it counted entries
first, of which short ones are many, then letters. The table of all rows has entries, too.

## What it costs where nobody attacks

*Reflections that count* are evidence or an echo; a round is a minute here. `python -m
combee_experiments.attacks.price {seeds}` prints it:

{price}

In five wordings each wording is a lesson of its own to code: in `public` it waits for four sources of its own. So
`public` misses its bar of 2 % wherever sources use their own words.

## Why what is missed is missed

- **team, harmful where there is room**: what a source adds is never held up. A judge or `public` holds it up.
- **Where nobody proves who they are** all are one source, and no rule by source can help: destroying takes three
  reflections at most, and a curator that obeys an order removes what it is told to.
- **three who collude in a team** have what three sources have: they change anything.
- **public in five wordings**: a source that says a lesson in other words is witnessed by the check call alone, and
  that is no support, because a text may ride on a lesson. No rule by words tells a rider from a paraphrase: both have
  words that the lesson lacks.
- **team, short of room, in five wordings** loses lessons without an attacker, too: several wordings of one lesson
  take the room of another.

## What was taken out

Each protection was taken out where it should matter: [what it gained](../design/adr/0044-what-protections-gain.md).
`python -m combee_experiments.attacks.ablations` shows those that stand.

## Who attacks

Attacks that know nothing of the protections: floods, contradictions, orders to the reflector, to the curator and to
agents, harmful tags, forged scores, markup of tool calls, many names, a rider on honest lessons, and a crowd that
sends 100 a round. Six know the code: *newborn* names the ids that the next batch gives; *rewording* and *removal*
go for the entries behind which the least stands, with tags and an order to the curator; *eviction* fills the room
and praises its own; *reputation* teaches true lessons for ten rounds first; *combination* does one after the other.
*One who searches* climbs over attacks, their order, when they begin and how often they come, with whole runs on the
same honest records, and shows the worst of {tried}. Where something is promised of one attacker all are tried;
elsewhere those that did most in a run of all on all.

- Attackers read the playbook that agents read.
- **A model that reads an order or a polite request to its role obeys always**, whatever fence it stands in: the
  worst case, an assumption. **Its check call is right**, which is none.
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
        measured=len(measured),
        planned=sum(1 for _ in experiment.cells(Setup(data=(), seeds=tuple(range(seeds))))),
        tried=experiment.TRIED,
        worst=_plain(Table(title="", columns=WORST, rows=tuple(worst(measured)))),
        verdicts="\n".join(f"- {told(verdict)}" for verdict in verdicts(measured)),
        price=_plain(price.table(tuple(range(seeds)))),
    )


def _plain(table: Table) -> str:
    return markdown(table).partition("\n\n")[2].strip()


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
