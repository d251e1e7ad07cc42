"""How often two different lessons would be taken for one, and how fast repeats are found (see docs/design).

Run as: python benchmarks/similarity.py [folder with formula_train.jsonl and playbook_appworld_offline.txt]
The table of docs/results/similarity.md: python benchmarks/similarity.py --labelled
"""

import csv
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from random import Random

from rapidfuzz import fuzz

from combee.core.formats.render import parse_ace
from combee.core.playbook.draft import apply_operations, finish
from combee.core.playbook.results.clusters import clusters
from combee.core.playbook.versions import empty
from combee.core.text.similarity.embeddings import UNMEASURED, Thresholds, cosine_of, near_pairs, unit
from combee.core.text.similarity.lessons import same_lesson
from combee.core.text.similarity.measuring import Pair, proposed, verdicts
from combee.core.text.similarity.overlap import Overlap, said_words
from combee.core.text.similarity.wording import of_short
from combee.log.evaluation.labelled_pairs import labelled_pairs
from combee_schemas.playbook import ACE_SECTIONS, Entry
from combee_schemas.scan import Operation, OperationKind
from combee_sim.embeddings import vector
from combee_sim.family.conventions import possible
from combee_sim.family.family import lessons
from combee_sim.family.insights import insight
from combee_sim.family.quantities import QUANTITIES
from combee_sim.family.wordings import all_wordings

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
RATIOS = (88, 92, 96)
BOUNDS = (0.15, 0.2, 0.25, 0.3)
PARAPHRASES = (
    (
        "shr-00005",
        (
            "The agent guessed an API's parameters; it must read the documentation with show_api_doc before "
            "the first call."
        ),
    ),
    (
        "shr-00006",
        "Do one small step at a time and check that it worked before you change anything for good.",
    ),
    (
        "shr-00021",
        "Compute dates such as yesterday from the current datetime rather than writing them into the code.",
    ),
    (
        "shr-00068",
        (
            "For 'this year' check that every month is in the data before summing up; do not report totals "
            "of missing periods."
        ),
    ),
    (
        "shr-00067",
        (
            "Look through all files in a directory whatever their format, PDF and TXT, since PDFs may need "
            "another parser."
        ),
    ),
    (
        "cms-00098",
        "Do not call show_song for each song to learn its duration: the library APIs have it already.",
    ),
    (
        "shr-00206",
        (
            "When following artists from playlists, show_playlist_library gives the song ids already, so "
            "show_playlist is not needed."
        ),
    ),
    (
        "cms-00115",
        (
            "Recommendations already hold genre and release date; check show_recommendations' response "
            "before asking show_song for each."
        ),
    ),
    (
        "api-00123",
        (
            "To reverse a Venmo payment find the approved request with show_sent_payment_requests and pay "
            "the amount back with create_transaction."
        ),
    ),
    (
        "shr-00124",
        "If the last payment is meant, sort transactions by created_at descending and take the first.",
    ),
    (
        "vc-00249",
        "After compressing folders make sure the zip files are there and the original directories are gone.",
    ),
    (
        "vc-00104",
        "Whether an album is fully downloaded must be checked per album with show_song_privates.",
    ),
    (
        "code-00012",
        (
            "To find the least played song log in, page through the library and take the minimum play_count "
            "from show_song."
        ),
    ),
    (
        "vc-00284",
        (
            "After approving payment requests check with show_received_payment_requests that none of these "
            "people's are pending."
        ),
    ),
    (
        "vc-00042",
        "Oldest song: gather unique ids from songs, albums and playlists with pagination and compare release dates.",
    ),
    (
        "shr-00180",
        "Rate songs that are liked and in an album: fetch both lists completely, intersect, then review.",
    ),
)
"""What other agents might find: the entry of the AppWorld playbook that says it already, and their words."""


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
    print()
    _claims(folder)
    print()
    _clusters(folder)
    print()
    _wordings()
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


def _claims(folder: Path) -> None:
    """Print how many right and how many wrong claims that an entry says something already would pass."""
    print("| claims | right | wrong | " + " | ".join(f"≥ {bound}" for bound in BOUNDS) + " |")
    print("|---|---|---|" + "---|" * len(BOUNDS))
    for name, texts in corpora(folder):
        entries = [
            Entry(id=str(n), section=ACE_SECTIONS[0], content=content) for n, content in enumerate(texts)
        ]
        said = [(content, str(n)) for n, content in enumerate(texts)]
        if "AppWorld" in name:
            found = parse_ace((folder / "playbook_appworld_offline.txt").read_text("utf-8"))[1]
            entries = list(found)
            said = [(words, entry_id) for entry_id, words in PARAPHRASES]
        overlap = Overlap(entries)
        right = [overlap.contained(text, entry_id) for text, entry_id in said]
        wrong = [
            overlap.contained(text, entry.id)
            for text, entry_id in said
            for entry in entries
            if entry.id != entry_id
        ]
        cells = [
            f"{sum(share >= bound for share in right)}, {sum(share >= bound for share in wrong) / len(wrong):.1%}"
            for bound in BOUNDS
        ]
        print(f"| {' | '.join(map(str, [name, len(right), len(wrong), *cells]))} |")


def _clusters(folder: Path) -> None:
    """Print how many clusters of entries that are alike a consolidation would ask about."""
    print("| texts | clusters | entries in them | largest |")
    print("|---|---|---|---|")
    for name, texts in corpora(folder):
        entries = [
            Entry(id=str(n), section=ACE_SECTIONS[0], content=content) for n, content in enumerate(texts)
        ]
        sizes = [len(cluster.entry_ids) for cluster in clusters(entries, 10**9)]
        print(f"| {name} | {len(sizes)} | {sum(sizes)} | {max(sizes, default=0)} |")


def _wordings() -> None:
    """Print how many entries a lesson has left when clusters found so are merged; the embeddings are simulated."""
    print(
        "| lessons, six wordings each | entries | left, by words alone | left, with embeddings (simulated) |"
    )
    print("|---|---|---|---|")
    told = [(n, text) for n, lesson in enumerate(lessons()) for text in all_wordings(lesson)]
    lesson_of = {f"e-{at:05d}": n for at, (n, _) in enumerate(told)}
    entries = [
        Entry(id=entry_id, section=ACE_SECTIONS[0], content=text)
        for entry_id, (_, text) in zip(lesson_of, told, strict=True)
    ]
    near = near_pairs({entry.id: vector(entry.content) for entry in entries}, 0.85)
    left = []
    for pairs in ({}, near):
        asked = clusters(entries, 10**9, pairs)
        # A right answer merges what is one lesson in a cluster, and nothing else.
        merged = sum(
            len(cluster.entry_ids) - len({lesson_of[entry_id] for entry_id in cluster.entry_ids})
            for cluster in asked
        )
        left.append(f"{len(entries) - merged} ({(len(entries) - merged) / len(lessons()):.2f} per lesson)")
    print(f"| {len(lessons())} | {len(entries)} | {left[0]} | {left[1]} |")


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
        of_short.cache_clear()
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
