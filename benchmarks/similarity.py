"""How often two different lessons would be taken for one (see docs/design).

Run as: python benchmarks/similarity.py [folder with formula_train.jsonl and playbook_appworld_offline.txt]
The table of docs/results/similarity.md: python benchmarks/similarity.py --labelled
"""

import csv
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from random import Random

from rapidfuzz import fuzz

from combee.core.formats.render import parse_ace
from combee.core.text.similarity.embeddings import UNMEASURED, Thresholds, cosine_of, unit
from combee.core.text.similarity.lessons import same_lesson
from combee.core.text.similarity.measuring import Pair, proposed, verdicts
from combee.core.text.similarity.overlap import said_words
from combee.log.evaluation.labelled_pairs import labelled_pairs
from combee_sim.family.conventions import possible
from combee_sim.family.family import lessons
from combee_sim.family.insights import insight
from combee_sim.family.quantities import QUANTITIES

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
RATIOS = (88, 92, 96)


def main() -> int:
    """Print, for each set of texts, how many pairs are one lesson by our rule and by a ratio of letters."""
    if sys.argv[1:] == ["--labelled"]:
        return _labelled()
    folder = Path(sys.argv[1]) if sys.argv[1:] else DATA
    print("| texts | pairs | same lesson | " + " | ".join(f"ratio ≥ {ratio}" for ratio in RATIOS) + " |")
    print("|---|---|---|" + "---|" * len(RATIOS))
    for name, texts in corpora(folder):
        pairs = list(combinations(texts, 2))
        by_ratio = [sum(_alike(limit)(*pair) for pair in pairs) for limit in RATIOS]
        cells = [name, len(pairs), sum(same_lesson(*pair) for pair in pairs), *by_ratio]
        print(f"| {' | '.join(map(str, cells))} |")
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


DIMENSIONS = 64
LESSON, SUBJECT, WORDS = 0.8, 0.7, 0.6
"""Weights of a simulated vector's parts: what is said, what it is about, its words. A negated text has the lesson's
direction, as real models put a lesson and its opposite near each other."""
UNDERSTOOD = 0.3
"""Minimum share of a text's lesson that its vector has; the share is drawn for each text, up to 1."""
NOISES = (0.3, 0.6)
"""Weights of the noise of each text."""


def _simulated(pairs: Sequence[Pair], noise: float) -> Mapping[str, tuple[float, ...]]:
    """Return a vector for each text, by a simulation that is told the pairs' labels."""
    vectors: dict[str, tuple[float, ...]] = {}
    for pair in pairs:
        for text, lesson in (
            (pair.text, pair.text if pair.label == "neighbour" else pair.lesson),
            (pair.lesson,) * 2,
        ):
            words = [_direction("word", word) for word in sorted(said_words(text))]
            together = unit([sum(parts) for parts in zip(*words, strict=True)])
            parts = (
                (LESSON * _understood(text), _direction("lesson", lesson)),
                (SUBJECT, _direction("subject", pair.lesson)),
                (WORDS, together),
                (noise, _direction("noise", text)),
            )
            vectors[text] = unit([sum(weight * part[n] for weight, part in parts) for n in range(DIMENSIONS)])
    return vectors


def _direction(*causes: str) -> tuple[float, ...]:
    chance = _chance(*causes)
    return unit([chance.gauss(0, 1) for _ in range(DIMENSIONS)])


def _understood(text: str) -> float:
    return _chance("understood", text).uniform(UNDERSTOOD, 1)


def _chance(*causes: str) -> Random:
    return Random("/".join(causes))  # noqa: S311 - a simulation


def _cosine(vectors: Mapping[str, tuple[float, ...]], text: str, lesson: str) -> float:
    return cosine_of(vectors[text], vectors[lesson])


def _labelled() -> int:
    """Print the verdicts on the labelled pairs, by words alone and with simulated embeddings."""
    pairs = labelled_pairs()
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["compared by", "label", "pairs", "yes", "no", "ask", "mean cosine", "cosine alone: yes"])
    for told in verdicts(pairs):
        out.writerow(["words alone", *_shares(told.label, told.pairs, told.yes, told.no, told.ask), "", ""])
    for noise in NOISES:
        cosine = partial(_cosine, _simulated(pairs, noise))
        meaning = proposed(pairs, cosine).meaning
        for thresholds in (Thresholds(meaning=meaning), UNMEASURED):
            kind = "not measured" if thresholds is UNMEASURED else "proposed"
            name = f"embeddings (simulated, noise {noise}), threshold {thresholds.meaning} ({kind})"
            for told in verdicts(pairs, cosine, thresholds):
                cosines = [cosine(pair.text, pair.lesson) for pair in pairs if pair.label == told.label]
                alone = sum(value >= thresholds.meaning for value in cosines)
                mean = f"{sum(cosines) / len(cosines):.2f}"
                shares = _shares(told.label, told.pairs, told.yes, told.no, told.ask)
                out.writerow([name, *shares, mean, f"{alone / told.pairs:.1%}"])
    return 0


def _shares(label: str, pairs: int, *counts: int) -> list[str]:
    return [label, str(pairs), *(f"{count / pairs:.1%}" for count in counts)]


if __name__ == "__main__":
    raise SystemExit(main())
