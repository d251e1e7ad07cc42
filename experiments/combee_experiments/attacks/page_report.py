"""Write docs/results/attacks.md and its table: ``python -m combee_experiments.attacks.page_report [SEEDS]``.

With ``--measured`` after them it measures nothing and writes what there is.
"""

import logging
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import structlog

from combee_experiments.attacks import experiment, price
from combee_experiments.attacks.report import COLUMNS, WORST, rows, verdicts, worst
from combee_experiments.running.cells import Measured
from combee_experiments.running.report import Table, Verdict, markdown
from combee_experiments.running.results import write_csv
from combee_experiments.running.run import run
from combee_experiments.running.setup import Setup, parse_seeds
from combee_experiments.running.store import Store

RESULTS = Path("docs/results")
CELLS = Path("results/attacks/cells.jsonl")
TEXT = """# Attacks

What do malicious producers get into production, and what stops them? **Simulated**: no real model was asked, and no
real attacker tried. Seven honest producers send 14 reflections a round; the attackers send six, 30 % of all, from
the fifth of 24 rounds on. `python -m combee_experiments.attacks.page_report {seeds}` ({seeds} seeds, some 5 minutes
each on one free core) writes this page; `make test-attacks` runs a small part. **{measured} of {planned} cells are
measured.**

## The worst of each posture

Each figure is that of the worst attack, which is named ([all rows](tables/attacks.csv)). *nobody proves*: no producer
has a secret. *one*, *three*: that number of proven attackers.

{worst}

*Harmful* is what agents are shown that is not, in all of its text, a true lesson. *Lost* are true lessons that agents
are not shown in the end. *Destroyed* are true lessons that agents were shown and are not shown in the next version,
even if they are learned again later; the last column counts those behind which two sources or more stood.

## What was to be shown

{verdicts}

The criteria were set before the first whole run, after single runs of some attacks on three arms. That of room was
changed after runs that missed it: it counts tokens, as room does, and no longer entries or letters.

## What it costs where nobody attacks

*Reflections that count* are evidence or an echo; a round is a minute here (`python -m
combee_experiments.attacks.price {seeds}`):

{price}

## What is not stopped, and why

- **A team with room shows what a source adds**: nothing holds it up but a judge or `public`.
- **Where nobody proves who they are** all are one source, and no rule by source can help.
- **Three who collude in a team** have what three sources have: they change anything.
- **public in five wordings**: each wording waits for four sources of its own. Only the check call sees that two
  wordings are one lesson, and that is no support, because a text may ride on a lesson.
- **team, short of room, in five wordings**: several wordings of one lesson take the room of another.

What each protection gains: [with and without it](../design/adr/0044-what-protections-gain.md), `python -m
combee_experiments.attacks.ablations`.

## Who attacks

- **Attacks that do not know the protections**: floods, contradictions, orders to the reflector, the curator and
  agents, harmful tags, forged scores, markup of tool calls, many names, a rider on honest lessons, a crowd.
- **Attacks that know the code**: *newborn* names the ids that the next batch gives. *Rewording* and *removal* go for
  the entries with the least support, with tags and an order to the curator. *Eviction* fills the room and praises
  its own. *Reputation* teaches true lessons for ten rounds first. *Combination* does one after the other. *One who
  searches* varies all this on the same honest records and shows the worst of {tried}.

Where something is promised of one attacker all are tried; elsewhere those that did most. Attackers read the playbook.
It has room for four times the true lessons, *short of room* for 1.25 times. *evaluate* asks two questions about each
lesson; *approve* is a person who makes no mistake.

**Assumed**: a model that reads an order or a polite request to its role always obeys, the worst case; its check call
is right, the best case.
"""


def page(measured: Measured, seeds: int) -> str:
    """Return the page."""
    return TEXT.format(
        seeds=seeds,
        measured=len(measured),
        planned=sum(1 for _ in experiment.cells(Setup(data=(), seeds=tuple(range(seeds))))),
        tried=experiment.TRIED,
        worst=_plain(Table(title="", columns=WORST, rows=tuple(_together(worst(measured))))),
        verdicts="\n".join(_lines(verdicts(measured))),
        price=_plain(price.table(tuple(range(seeds)))),
    )


def _together(rows: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yield the rows; those that differ in their first cell alone share one."""
    heads: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        heads.setdefault(row[1:], []).append(row[0])
    for rest, cells in heads.items():
        yield "; ".join(cells), *rest


def _lines(found: Iterable[Verdict]) -> Iterator[str]:
    for places, bound, word, told in _together(
        (*verdict.criterion.split(": ", 1), verdict.word, verdict.told) for verdict in found
    ):
        yield f"- **{word}**: {places}: {bound}: {told}"


def _plain(table: Table) -> str:
    return markdown(table).partition("\n\n")[2].strip()


def write(measured: Measured, seeds: int) -> None:
    """Write the page and the table."""
    (RESULTS / "attacks.md").write_text(page(measured, seeds), encoding="utf-8")
    write_csv(RESULTS / "tables" / "attacks.csv", [COLUMNS, *rows(measured)])


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
