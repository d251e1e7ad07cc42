"""The fold: every run counts once for the version that it was shown, whatever is said of it, in whatever order."""

from itertools import permutations
from random import Random
from statistics import fmean, variance
from typing import Any

import pytest

from combee.core.evaluation.outcomes.fold import (
    LINES_BYTES,
    MAX_ENTRIES,
    MAX_MEASURES,
    MAX_VERSIONS,
    Fold,
    merged,
)
from combee_schemas.base import Shown
from combee_schemas.codec import encode
from combee_schemas.outcome import Figures, Outcome, OutcomeStatistics
from support.rows import each_row

NAME = "support/refunds"


def outcome(
    run_id: str, version: int | None = 1, *, line: str = "", shown: tuple[str, ...] = (), **said: Any
) -> Outcome:
    what = None if version is None else Shown(version=version, line=line, entry_ids=shown)
    return Outcome(run_id=run_id, playbook=NAME, shown=what, **said)


def folded(*outcomes: Outcome, **options: Any) -> dict[str, OutcomeStatistics]:
    fold = Fold(**options)
    for offset, each in enumerate(outcomes):
        fold.add(offset, each)
    return {statistics.line: statistics for statistics in fold.changed(0)}


def figures(*outcomes: Outcome, version: int = 1) -> Figures:
    versions = folded(*outcomes)[NAME].versions
    return {each.version: each.figures for each in versions}[version]


def test_runs_count_for_the_version_that_they_were_shown() -> None:
    said = (
        outcome("a", 1, success=True),
        outcome("b", 1, success=False),
        outcome("c", 2, success=True),
        outcome("d", 2),
    )
    assert figures(*said) == Figures(runs=2, successes=1, failures=1)
    assert figures(*said, version=2) == Figures(runs=2, successes=1, unscored=1)


def test_scores_have_their_mean_and_variance() -> None:
    rng = Random(7)
    scores = [rng.gauss(1e6, 2) for _ in range(200)]
    (measure,) = figures(
        *(outcome(f"r{at}", score={"reward": score}) for at, score in enumerate(scores))
    ).scores
    assert measure.n == 200
    assert measure.mean == pytest.approx(fmean(scores))
    assert measure.m2 / 199 == pytest.approx(variance(scores), rel=1e-6)


def test_what_is_said_again_of_a_run_counts_once() -> None:
    said = outcome("a", score={"x": 1.0}, success=True)
    assert figures(said, said, said) == figures(said)


def test_of_two_words_on_one_run_the_first_holds() -> None:
    assert figures(outcome("a", success=True), outcome("a", success=False)) == Figures(runs=1, successes=1)


def test_a_late_outcome_makes_an_unscored_run_a_scored_one() -> None:
    before = outcome("a", 3, shown=("e-1",), bullet_ids=("e-1",))
    late = outcome("a", None, success=True, score={"x": 2.0})
    assert figures(before, version=3) == Figures(runs=1, unscored=1)
    now = folded(before, late)[NAME]
    assert now.unplaced == 0
    (entry,) = now.entries
    assert now.versions[0].figures == entry.used
    assert (entry.shown, entry.used.runs, entry.used.successes, entry.used.unscored) == (1, 1, 1, 0)


def test_the_order_in_which_things_are_said_of_a_run_does_not_matter() -> None:
    words = (
        outcome("a", 3, shown=("e-1",)),
        outcome("a", None, success=True),
        outcome("a", None, score={"x": 0.5}),
        outcome("a", None, bullet_ids=("e-1",)),
    )
    ways = [folded(*order)[NAME].model_copy(update={"through_offset": 0}) for order in permutations(words)]
    assert all(way == ways[0] for way in ways)
    assert ways[0].unplaced == 0


def test_a_run_that_names_no_version_is_counted_as_such() -> None:
    assert folded(outcome("a", None, success=True))[NAME].unplaced == 1


@each_row("line", ["other", "other@short", f"{NAME}@no name", "?"])
def test_a_run_that_names_a_line_of_another_playbook_is_not_placed(line: str) -> None:
    found = folded(outcome("a", 1, line=line, success=True))
    assert (set(found), found[NAME].unplaced) == ({NAME}, 1)


def test_a_branch_is_a_line_of_its_own() -> None:
    branch = f"{NAME}@short"
    found = folded(outcome("a", 1, success=True), outcome("b", 1, line=branch, success=False))
    assert found[NAME].versions[0].figures == Figures(runs=1, successes=1)
    assert found[branch].versions[0].figures == Figures(runs=1, failures=1)


def test_what_the_statistics_know_is_not_counted_again_wherever_reading_begins() -> None:
    rng = Random(3)
    said = [
        outcome(f"r{rng.randrange(60)}", rng.choice([None, 1, 2]), success=rng.choice([None, True, False]))
        for _ in range(200)
    ]
    whole = folded(*said)
    for start in range(0, 200, 9):
        fold = Fold(folded(*said[:start]).values())
        for offset, each in enumerate(said):  # from the beginning: as if the group had been reset
            fold.add(offset, each)
        assert {line.line: line for line in fold.changed(0)} == whole


def test_a_run_is_forgotten_after_the_horizon() -> None:
    others = [outcome(f"o{at}") for at in range(3)]
    said = outcome("a", success=True)
    near = folded(said, *others[:1], said, horizon=2)[NAME].versions[0].figures
    far = folded(said, *others, said, horizon=2)[NAME].versions[0].figures
    assert (near.successes, far.successes) == (1, 2)


def test_versions_beyond_the_newest_are_kept_together() -> None:
    many = [outcome(f"r{version}", version, success=True, score={"x": version}) for version in range(1, 301)]
    found = folded(*many, outcome("late", 2, success=False))[NAME]
    assert [each.version for each in found.versions] == list(range(301 - MAX_VERSIONS, 301))
    assert (found.earlier.successes, found.earlier.failures) == (300 - MAX_VERSIONS, 1)
    assert found.earlier.scores[0].mean == pytest.approx(fmean(range(1, 301 - MAX_VERSIONS)))


def test_runs_without_a_playbook_stay_apart_however_many_versions_follow() -> None:
    many = [outcome(f"r{version}", version, success=True) for version in range(301)]
    found = folded(*many, outcome("late", 0, success=False))[NAME]
    kept = [each.version for each in found.versions]
    assert kept == [0, *range(302 - MAX_VERSIONS, 301)]
    assert (found.versions[0].figures.successes, found.versions[0].figures.failures) == (1, 1)
    assert found.earlier.runs == 301 - MAX_VERSIONS


def test_figures_of_two_parts_are_those_of_the_whole() -> None:
    said = [outcome(f"r{at}", score={"x": at**2}, success=at % 3 == 0) for at in range(20)]
    both, whole = merged(figures(*said[:7]), figures(*said[7:])), figures(*said)
    assert both.model_dump(exclude={"scores"}) == whole.model_dump(exclude={"scores"})
    assert both.scores[0].m2 == pytest.approx(whole.scores[0].m2)


def test_statistics_fit_a_record_whatever_comes() -> None:
    fold = Fold()
    for at in range(3 * MAX_ENTRIES):
        ids = (f"{at:080d}",)
        score = {f"{at % 30:040d}"[:40]: float(at) / 7, **{f"{name:040d}": 1 / 3 + at for name in range(9)}}
        said = outcome(f"r{at}", at, shown=ids, bullet_ids=ids, score=score, success=True)
        fold.add(at, said)
        fold.add(3 * MAX_ENTRIES + at, said.model_copy(update={"run_id": f"s{at}", "score": {f"z{at}": 0.1}}))
    (statistics,) = fold.changed(0)
    assert len(statistics.versions) == MAX_VERSIONS
    assert len(statistics.entries) == MAX_ENTRIES
    assert max(len(entry.used.scores) for entry in statistics.entries) <= MAX_MEASURES
    assert len(encode(statistics)) < OutcomeStatistics.max_bytes


BEE = "\N{HONEYBEE}"  # four bytes


def test_statistics_fit_a_record_whatever_characters_names_are_written_in() -> None:
    fold = Fold()
    names = [BEE * 38 + f"{at:02}" for at in range(MAX_MEASURES)]
    for at in range(MAX_VERSIONS + 10):
        used = 200 if at <= MAX_ENTRIES // 200 else 1  # each entry is used once; the rest are versions
        ids = tuple(BEE * 74 + f"{(200 * at + n) % MAX_ENTRIES:06}" for n in range(used))
        fold.add(at, outcome(f"r{at}", at, bullet_ids=ids, score=dict.fromkeys(names, 0.123456)))
    (statistics,) = fold.changed(0)
    assert OutcomeStatistics.max_bytes // 2 < len(encode(statistics)) <= OutcomeStatistics.max_bytes
    (newest,) = (each for each in statistics.versions if each.version == MAX_VERSIONS + 9)
    assert newest.figures.runs == 1
    assert statistics.entries[-1].entry_id == ids[-1]
    assert (
        sum(each.figures.runs for each in statistics.versions) + statistics.earlier.runs == MAX_VERSIONS + 10
    )
    interrupted = Fold([statistics])
    for each in (fold, interrupted):
        each.add(1_000, outcome("last", 1_000, bullet_ids=ids, score={"other": 1.0}))
    assert list(fold.changed(0)) == list(interrupted.changed(0))


def test_invented_branches_with_many_entries_take_bounded_room_and_push_out_no_line_with_runs() -> None:
    """An outcome of 1 KB left 1.3 MB of objects: two hundred of them were more than control may use."""
    fold = Fold()
    used, names = tuple(f"{n}" for n in range(200)), [f"{n}" for n in range(MAX_MEASURES)]
    score = dict.fromkeys(names, 1.0)
    for at in range(100):
        fold.add(2 * at, outcome(f"honest-{at}", success=True))
        fold.add(2 * at + 1, outcome(f"r{at}", line=f"{NAME}@b{at}", bullet_ids=used, score=score))
    kept = {statistics.line: statistics for statistics in fold.changed(0)}
    assert sum(len(encode(statistics)) for statistics in kept.values()) <= LINES_BYTES
    assert kept[NAME].versions[0].figures.runs == 100
    gone = fold.gone()
    assert len(kept) + len(gone) == 101
    fold = Fold(kept.values())
    for at in range(1_000, 1_100):
        fold.add(at, outcome(f"s{at}", line=f"{NAME}@c{at}", bullet_ids=used, score=score))
    both = kept.keys() - fold.gone() | {statistics.line for statistics in fold.changed(0)}
    assert len(both) <= len(kept)


@pytest.mark.parametrize(("used", "runs"), [(4, 1), (200, 2)])
def test_runs_that_used_very_many_entries_are_forgotten_before_they_fill_the_memory(
    used: int, runs: int
) -> None:
    ids = [tuple(f"{at:06}-{n:073}" for n in range(used)) for at in range(1_000)]
    first = outcome("first", success=True)
    others = (outcome(f"r{at}", 2, bullet_ids=ids[at]) for at in range(1_000))
    assert figures(first, *others, first).runs == runs
