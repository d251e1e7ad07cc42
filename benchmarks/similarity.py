"""How often two different lessons would be taken for one, and how fast repeats are found (see docs/design).

Run as: python benchmarks/similarity.py [folder with formula_train.jsonl and playbook_appworld_offline.txt]
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path

from rapidfuzz import fuzz

from combee.core.formats.render import parse_ace
from combee.core.playbook.entries import apply_operations, finish
from combee.core.playbook.similarity import same_lesson
from combee.core.playbook.versions import empty
from combee.core.playbook.wording import wording
from combee.sim.family.conventions import possible
from combee.sim.family.family import lessons
from combee.sim.family.insights import insight
from combee.sim.family.quantities import QUANTITIES
from combee_schemas.playbook import ACE_SECTIONS
from combee_schemas.scan import Operation, OperationKind

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
RATIOS = (88, 92, 96)


def main() -> int:
    """Print, for each set of texts, how many pairs are one lesson by our rule and by a ratio of letters."""
    folder = Path(sys.argv[1]) if sys.argv[1:] else DATA
    print("| texts | pairs | same lesson | " + " | ".join(f"ratio ≥ {ratio}" for ratio in RATIOS) + " |")
    print("|---|---|---|" + "---|" * len(RATIOS))
    for name, texts in corpora(folder):
        pairs = list(combinations(texts, 2))
        by_ratio = [sum(_alike(limit)(*pair) for pair in pairs) for limit in RATIOS]
        cells = [name, len(pairs), sum(same_lesson(*pair) for pair in pairs), *by_ratio]
        print(f"| {' | '.join(map(str, cells))} |")
    print()
    _speed()
    return 0


def corpora(folder: Path) -> Sequence[tuple[str, Sequence[str]]]:
    """Return the sets of texts there are."""
    first = QUANTITIES[0]
    every = [c.sentence() for n in range(4) for c in possible(first.name, (first.first, first.second), n)]
    texts: list[tuple[str, Sequence[str]]] = [
        (f"{len(QUANTITIES)} conventions of the built-in family, all different", lessons()),
        (f"{len(every)} conventions of one quantity, all different", every),
    ]
    if (formula := folder / "formula_train.jsonl").exists():
        rows = map(json.loads, formula.read_text("utf-8").splitlines())
        distinct = sorted({insight(row["context"], "", row["target"]) for row in rows})
        texts.append((f"{len(distinct)} Formula lessons, all different", distinct))
    if (appworld := folder / "playbook_appworld_offline.txt").exists():
        contents = [entry.content for entry in parse_ace(appworld.read_text("utf-8"))[1]]
        texts.append((f"{len(contents)} entries that a real model learned on AppWorld", contents))
    return texts


def _alike(limit: int) -> Callable[[str, str], bool]:
    return lambda left, right: fuzz.token_sort_ratio(left, right, score_cutoff=limit) > 0


def _speed() -> None:
    family = [c.sentence() for q in QUANTITIES for c in possible(q.name, (q.first, q.second), 2)][:1_600]
    said = [*family[:400], *family]
    operations = [
        Operation(kind=OperationKind.ADD, section=ACE_SECTIONS[1], content=content, evidence=(f"r-{n}",))
        for n, content in enumerate(said)
    ]
    draft = apply_operations(empty("p"), operations[:400], ())
    base = empty("p").model_copy(update={"entries": tuple(draft.entries.values()), "next_id": draft.next_id})
    for batch_operations in (operations[400:450], operations):
        wording.cache_clear()
        for what in ("first", "again"):
            began = time.perf_counter()
            after = apply_operations(base, batch_operations, ())
            finish(base, after, 10**9)
            took_ms = (time.perf_counter() - began) * 1_000
            print(
                f"{len(batch_operations)} operations on {len(base.entries)} entries, {what}: {took_ms:.0f} ms"
            )


if __name__ == "__main__":
    raise SystemExit(main())
