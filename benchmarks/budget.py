"""``python -m benchmarks.budget``: what a token budget costs per batch, and what large playbooks cost Combee itself.

Writes docs/results/tables/budget-{batch,times}.csv. Tokens are estimated from the prompts as they are sent; times are
processor time. The playbooks are generated.
"""

import argparse
import csv
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, product
from pathlib import Path
from random import Random
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.faces import face_times
from combee.core.batching.limits import PRODUCT
from combee.core.methods import ace
from combee.core.playbook import versions
from combee.core.playbook.budget import entry_tokens
from combee.core.playbook.results.clusters import clusters
from combee.core.text.prompt import estimate_tokens
from combee.core.text.similarity.relevance import best_entries
from combee_schemas.base import Usage
from combee_schemas.codec import encode
from combee_schemas.model import Prompt
from combee_schemas.plan import Plan
from combee_schemas.playbook import ACE_SECTIONS, Entry, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import NodeResult, Operation, OperationKind, Seen, Update

TABLES = Path(__file__).parents[1] / "docs" / "results" / "tables"
BUDGETS = (4_000, 8_000, 16_000, 24_000, 40_000, 80_000)
DEFAULT_AT_MOST = 1.5
"""The default is the largest budget at which a batch costs at most so many times what it costs at the smallest.

Written down before the first run. Reflecting is part of the batch's cost.
"""
SMALL, LARGE = 16_000, 80_000
AT_MOST, GROWS_AT_MOST = 3.0, 6.0
"""Bars of the time at 80,000 by that at 16,000: of consolidation, and of work that reads or writes all of the text.

The text is 5 times as long.
"""
CONSOLIDATION = "consolidation: what is alike"
BATCH, COPIES, GROUPS = 40, 2, 6
LEARNED = 25
"""Batches of distinct lessons."""
REPLY_TOKENS, REFLECTION_REPLY_TOKENS, TRACE_TOKENS = 600, 300, 1_000
"""Assumed: a curator's reply, a reflector's, and the trace that it reads."""
IN, CACHED, OUT = 0.40, 0.10, 1.60
"""Assumed prices: dollars per million tokens."""
WORDS = [
    "".join(parts)
    for parts in product(("ba", "de", "ki", "lo", "mu", "na", "po", "re", "si", "tu"), repeat=4)
]
FREQUENCIES = list(accumulate(1 / rank for rank in range(1, len(WORDS) + 1)))
"""Zipf's law."""
WORDS_EACH, REWORDED = (25, 65), 0.1
RUNS = 9

Rows = list[tuple[str, ...]]


# ---- generated playbooks


def _contents(seed: int = 0) -> Iterator[str]:
    """Yield texts of about 100 tokens in words as frequent as in a language, one in ten a rewording of another."""
    drawing = Random(seed)  # noqa: S311 - reproducible, not secret
    said: list[list[str]] = []
    while True:
        words = drawing.choices(WORDS, cum_weights=FREQUENCIES, k=drawing.randint(*WORDS_EACH))
        if said and drawing.random() < REWORDED:
            old = drawing.choice(said)
            words = [
                drawing.choice((known, known, known, new)) for known, new in zip(old, words, strict=False)
            ]
            drawing.shuffle(words)
        said.append(words)
        yield f"{' '.join(words)}."


def _entry(number: int, content: str) -> Entry:
    evidence = tuple(f"reflection-{number:06d}-{n:02d}" for n in range(20))
    return Entry(
        id=f"calc-{number:05d}",
        section=ACE_SECTIONS[1],
        content=content,
        evidence=evidence,
        evidence_count=len(evidence),
        sources=("shop", "desk"),
        created_version=1,
        updated_version=1,
    )


def full(tokens: int) -> Playbook:
    """Return a playbook of about so many tokens."""
    entries: list[Entry] = []
    size, texts = 0, _contents()
    while size < tokens:
        entry = _entry(len(entries) + 1, next(texts))
        size += entry_tokens(entry)
        if size <= tokens:
            entries.append(entry)
    known = {"version": 1, "entries": tuple(entries), "next_id": len(entries) + 1}
    return versions.empty("bench").model_copy(update=known)


def _reflections(first: int) -> list[Reflection]:
    texts = _contents(first + 1)
    return [
        Reflection(reflection_id=f"r-{first + n}", playbook="bench", key_insight=next(texts))
        for n in range(BATCH)
    ]


def update(base: Playbook, first: int) -> Update:
    """Return what a batch of new lessons makes of a playbook: one addition for each."""
    reflections = _reflections(first)
    operations = [
        Operation(
            kind=OperationKind.ADD,
            section=ACE_SECTIONS[1],
            content=reflection.key_insight,
            evidence=(reflection.reflection_id,),
        )
        for reflection in reflections
    ]
    seen = [Seen(reflection_id=each.reflection_id, offset=first + n) for n, each in enumerate(reflections)]
    sequence = base.batch_sequence + 1
    plan = Plan(
        batch_id=f"b-{sequence}",
        playbook=base.name,
        sequence=sequence,
        settings=PRODUCT,
        widths=(GROUPS, 1),
        base_version=base.version,
        reflections=BATCH,
        through_offset=first + BATCH - 1,
    )
    result = NodeResult(
        status="ok", operations=tuple(operations), seen=tuple(seen), usage=Usage(calls=GROUPS)
    )
    return Update(plan=plan, node_id="n", result=result)


# ---- what a batch costs


def batch_rows() -> Rows:
    """Return, for each budget, the tokens and the price of a batch on a full playbook, and what is evicted."""
    rows: Rows = [
        (
            "budget (tokens)",
            "entries of 100 tokens",
            "a curator's call reads",
            "curators of a batch read",
            "the shared beginning",
            "a batch, reflecting included",
            "by that at 4,000",
            "without a cache",
            "first group first",
            "of 1,000 lessons left",
        )
    ]
    first = 0.0
    for budget in BUDGETS:
        playbook = full(budget)
        group, combine = _prompts(playbook, budget)
        read, shared = GROUPS * _tokens(group) + _tokens(combine), estimate_tokens(combine.system)
        price = _price(read, shared)
        first = first or price
        rows.append(
            (
                f"{budget:,}",
                str(len(playbook.entries)),
                f"{_tokens(group):,}",
                f"{read:,}",
                f"{shared:,}",
                f"${price:.3f}",
                f"{price / first:.2f}",
                f"${_price(read, 0):.3f}",
                f"${_price(read, GROUPS * shared):.3f}",
                f"{_kept(budget):,}",
            )
        )
    return rows


def _price(read: int, cached: int) -> float:
    """Return a batch's price in dollars if its curators read so many tokens, ``cached`` of them from the cache."""
    curating = (read - cached) * IN + cached * CACHED + (GROUPS + 1) * REPLY_TOKENS * OUT
    trace = estimate_tokens(ace.REFLECT) + TRACE_TOKENS + 2_000
    reflecting = BATCH * (trace * IN + REFLECTION_REPLY_TOKENS * OUT)
    return (curating + reflecting) / 1e6


def _prompts(playbook: Playbook, budget: int) -> tuple[Prompt, Prompt]:
    """Return the prompts of a group and of the combine."""
    settings = PRODUCT.model_copy(update={"playbook_tokens": budget})
    reflections = _reflections(0)
    of_group = BATCH * COPIES // GROUPS
    proposals = update(playbook, 0).result.operations
    return (
        ace.aggregate_prompt(playbook, reflections[:of_group], settings=settings),
        ace.combine_prompt(playbook, proposals, settings=settings),
    )


def _tokens(prompt: Prompt) -> int:
    return estimate_tokens(prompt.system) + estimate_tokens(prompt.user)


def _kept(budget: int) -> int:
    """Return how many of 1,000 distinct lessons, of one source in batches of 40, are in the playbook at the end."""
    playbook = versions.empty("bench")
    for batch in range(LEARNED):
        made = update(playbook, batch * BATCH)
        playbook = versions.after_update(playbook, made, budget_tokens=budget, now_ms=0)
    return len(playbook.entries)


# ---- what a large playbook costs Combee


def time_rows() -> Rows:
    """Return processor times at 16,000 and at 80,000 tokens."""
    rows: Rows = [("work", "at 16,000 tokens (ms)", "at 80,000", "×", "bar", "verdict")]
    small, large = full(SMALL), full(LARGE)
    rows += [_row(name, _time(work, small), _time(work, large)) for name, work in WORK.items()]
    read, read_large = face_times(small, RUNS), face_times(large, RUNS)
    return rows + [_row(face, median(read[face]), median(read_large[face])) for face in read]


def _row(name: str, before: float, after: float) -> tuple[str, ...]:
    ratio, bar = after / before, AT_MOST if name == CONSOLIDATION else GROWS_AT_MOST
    verdict = "met" if ratio <= bar else "missed"
    return (name, f"{before:.1f}", f"{after:.1f}", f"{ratio:.1f}", f"≤ {bar:g}", verdict)


def _time(work: Callable[[Playbook], object], playbook: Playbook) -> float:
    """Return the median processor time of the work on a version that nobody has seen, in milliseconds."""
    times = []
    for _ in range(RUNS):
        fresh = Playbook.model_validate(playbook.model_dump())
        began = time.process_time()
        work(fresh)
        times.append((time.process_time() - began) * 1e3)
    return median(times)


def _applied(playbook: Playbook) -> Playbook:
    size = sum(map(entry_tokens, playbook.entries))
    return versions.after_update(playbook, update(playbook, 5_000), budget_tokens=size, now_ms=0)


WORK: Mapping[str, Callable[[Playbook], object]] = {
    "retrieval: the 2,000 tokens nearest to a question": lambda playbook: best_entries(
        playbook.entries, query=next(_contents(1)), budget_tokens=2_000
    ),
    CONSOLIDATION: lambda playbook: clusters(playbook.entries, 32_000),
    "apply: 40 additions to a full playbook, 40 evictions": _applied,
    "a group's prompt": lambda playbook: ace.aggregate_prompt(playbook, _reflections(0)),
    "a snapshot's write": lambda playbook: encode(versions.fitted(playbook)),
}


def _show(console: Console, title: str, rows: Rows) -> None:
    table = Table(*rows[0], title=title)
    for row in rows[1:]:
        table.add_row(*row)
    console.print(table)


def _write(path: Path, rows: Sequence[tuple[str, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def main() -> None:
    """Measure, print and write both tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.budget", description=__doc__)
    parser.add_argument("--only", choices=("batch", "times"), help="one of the tables")
    only = parser.parse_args().only
    for name, measure in (("batch", batch_rows), ("times", time_rows)):
        if only in (None, name):
            rows = measure()
            _show(Console(), f"budget: {name}", rows)
            _write(TABLES / f"budget-{name}.csv", rows)


if __name__ == "__main__":
    main()
