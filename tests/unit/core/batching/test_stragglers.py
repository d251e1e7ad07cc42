"""Which groups a combine may leave out, and which calls are made again: decided from plans and times alone."""

from collections.abc import Collection, Mapping
from itertools import combinations
from typing import Any

from combee.core.batching import tree
from combee.core.batching.hedging import LEARNED_FROM, MAX_SAVED, SHARE, Hedging
from combee.core.batching.plan import Base, deal_batch, plan_batch, plan_hash
from combee.core.batching.stragglers import (
    LATE,
    grace_s,
    is_covered,
    lateness_in_s,
    with_left_out,
)
from combee_schemas.base import Usage
from combee_schemas.batch import Batch, Member
from combee_schemas.plan import PlanSettings
from combee_schemas.scan import NodeResult, Seen
from support.rows import each_row

CALL = Usage(calls=1, tokens_in=100, tokens_out=10, seconds=2.0)


def cut(count: int = 9, copies: int = 2, *, left_out: tuple[int, ...] | None = None, **fields: Any) -> Batch:
    settings = {"copies": copies, "fan_in": 32, "max_levels": 4, "group_bytes": 700 << 10, "stragglers": True}
    return plan_batch(
        "a",
        1,
        [Member(offset=n, reflection_id=f"r-{n}") for n in range(count)],
        [100] * count,
        settings=PlanSettings(**{**settings, **fields}),
        base=Base(version=0, sequence=0),
        reason="flush",
        batch_size=count,
        through_offset=count - 1,
        left_out=left_out,
    )


def results(batch: Batch, present: Collection[int], *, failed: int = -1) -> Mapping[int, NodeResult]:
    """Return the results of some groups of a two-level tree."""
    dealt = deal_batch(batch)
    return {
        index: NodeResult(
            status="failed" if index == failed else "ok",
            seen=tuple(
                Seen(reflection_id=one.reflection_id, offset=one.offset, ok=index != failed)
                for one in dealt[index]
            ),
            usage=CALL,
        )
        for index in present
    }


def grace(batch: Batch, present: Collection[int], *, failed: int = -1) -> float | None:
    took = [1.0] * len(present)
    return grace_s(batch.plan, len(batch.plan.widths) - 1, results(batch, present, failed=failed), took)


# ---- when a combine may go on


@each_row("count", [9, 40, 100])
def test_any_one_group_may_be_late_when_there_are_two_copies(count: int) -> None:
    batch = cut(count)
    groups = set(range(batch.plan.widths[0]))
    for late in groups:
        assert grace(batch, groups - {late}) == LATE - 1.0


def test_nothing_is_left_out_that_nobody_else_has_read() -> None:
    batch = cut(100)
    dealt = [{one.offset for one in group} for group in deal_batch(batch)]
    for late in combinations(range(10), 2):
        lost = dealt[late[0]] & dealt[late[1]]
        assert (grace(batch, set(range(10)) - set(late)) is None) == bool(lost)


def test_a_group_that_failed_has_read_nothing() -> None:
    batch = cut(9)
    assert grace(batch, {0, 1}, failed=0) is None


@each_row("batch", [cut(9, 1), cut(3), cut(9, stragglers=False)], ids=["one copy", "one group", "off"])
def test_without_copies_or_the_setting_everything_is_waited_for(batch: Batch) -> None:
    for size in range(batch.plan.widths[0]):
        for present in combinations(range(batch.plan.widths[0]), size):
            assert not present or grace(batch, present) is None


def test_only_the_root_decides() -> None:
    batch = cut(100, fan_in=4)
    assert len(batch.plan.widths) > 2
    everything = NodeResult(
        status="ok", seen=tuple(Seen(reflection_id=f"r-{n}", offset=n) for n in range(100))
    )
    assert grace_s(batch.plan, 1, {0: everything}, [1.0]) is None
    assert grace_s(batch.plan, len(batch.plan.widths) - 1, {0: everything}, [1.0]) is not None


def test_what_is_late_is_learned_from_the_siblings() -> None:
    assert lateness_in_s([1.0, 1.0, 1.0]) == LATE - 1.0
    assert lateness_in_s([1.0, 1.0, 1.5]) == LATE - 1.5
    assert lateness_in_s([1.0, 1.0, 9.0]) == 0.0


# ---- what the record says


def test_the_result_names_what_is_missing_and_counts_its_call_as_its_siblings() -> None:
    batch = cut(9)
    present = results(batch, {0, 2})
    whole = with_left_out(NodeResult(status="ok", usage=CALL + CALL + CALL), batch.plan, present)
    assert whole.left_out == (1,)
    assert whole.usage == CALL + CALL + CALL + CALL + Usage(left_out=1)
    assert whole.usage.calls == sum(batch.plan.widths)


def test_a_complete_result_stays_as_it_is() -> None:
    batch = cut(9)
    result = NodeResult(status="ok", usage=CALL)
    assert with_left_out(result, batch.plan, results(batch, {0, 1, 2})) == result


def test_of_a_sub_tree_all_nodes_count() -> None:
    batch = cut(100, fan_in=4)  # 10, 3, 1
    below = NodeResult(status="ok", usage=Usage(calls=5, tokens_in=500))
    whole = with_left_out(NodeResult(status="ok"), batch.plan, {0: below, 2: below})
    assert batch.plan.widths == (10, 3, 1)
    assert (whole.usage.calls, whole.usage.left_out) == (4, 4)
    assert whole.usage.tokens_in == round(1_000 * 4 / 9)


# ---- replays


def test_a_replay_waits_for_exactly_what_was_there() -> None:
    batch = cut(9, left_out=(1,))
    assert batch.plan.left_out == (1,)
    assert grace(batch, {0}) is None
    assert grace(batch, {0, 2}) == 0.0
    assert [tree.is_left_out(batch.plan.widths, leaf, (1,)) for leaf in range(3)] == [False, True, False]
    whole = with_left_out(NodeResult(status="ok"), batch.plan, results(batch, {0, 2}))
    assert (whole.left_out, whole.usage) == ((1,), Usage(skips=1))


def test_a_replay_of_a_batch_that_waited_for_all_waits_for_all() -> None:
    batch = cut(9, left_out=())
    assert grace(batch, {0, 2}) is None
    assert grace(batch, {0, 1, 2}) == 0.0


@each_row(("copies", "left_out"), [(1, (0,)), (2, (0, 1)), (2, (0, 1, 2))])
def test_coverage_that_would_lose_reflections_is_not_believed(copies: int, left_out: tuple[int, ...]) -> None:
    assert cut(9, copies, left_out=left_out).plan.left_out is None


def test_the_setting_is_in_a_plans_hash_and_the_coverage_is_not() -> None:
    off = cut(9, stragglers=False)
    assert plan_hash(cut(9)) != off.plan.sha256
    assert plan_hash(cut(9, left_out=(1,))) == plan_hash(cut(9))


# ---- calls made again


def busy(times: Mapping[int, list[float]]) -> Hedging:
    """Return what is known after calls that took so long, by level, one after the other."""
    hedging = Hedging()
    for level, seconds in times.items():
        for took in seconds:
            hedging.end(hedging.begin(level, 0.0), took, answered=True)
    return hedging


def test_a_slow_call_is_one_above_what_its_level_usually_takes() -> None:
    hedging = busy({0: [1.0] * 19 + [9.0], 1: [4.0] * 12 + [20.0] * 8})
    assert (hedging.after_s(0), hedging.after_s(1)) == (9.0, 20.0)


def test_where_all_calls_take_alike_one_must_be_unusual() -> None:
    assert busy({1: [2.0] * 20}).after_s(1) == 2.5


def test_nothing_is_judged_before_enough_is_known() -> None:
    assert busy({0: [1.0] * (LEARNED_FROM - 1)}).after_s(0) is None
    assert busy({0: [4.0] * LEARNED_FROM, 1: [1.0]}).after_s(1) == 5.0  # until then as the level below


def test_at_most_every_tenth_call_is_made_again() -> None:
    hedging, made = Hedging(), 0
    for _ in range(1_000):
        number = hedging.begin(0, 0.0)
        made += hedging.spend(0.5)
        hedging.end(number, 1.0, answered=True)
    assert 90 <= made <= SHARE * 1_000


def test_quiet_times_save_up_little() -> None:
    hedging = busy({0: [1.0] * 1_000})
    assert sum(hedging.spend(1.0) for _ in range(100)) == MAX_SAVED


def test_no_call_is_made_again_while_most_of_them_are_slow() -> None:
    hedging = busy({0: [1.0] * 100})
    slow = [hedging.begin(0, 100.0) for _ in range(10)]
    assert not hedging.spend(102.0)
    for number in slow:
        hedging.end(number, 110.0, answered=True)
    assert not hedging.spend(110.0)  # what has just ended tells it too


def test_one_slow_call_among_many_is_made_again() -> None:
    hedging = busy({0: [1.0] * 100})
    hedging.begin(0, 100.0)
    assert hedging.spend(102.0)


def test_what_failed_teaches_nothing() -> None:
    hedging = Hedging()
    for _ in range(20):
        hedging.end(hedging.begin(0, 0.0), 60.0, answered=False)
    assert hedging.after_s(0) is None


def test_only_calls_that_nothing_covers_are_made_again() -> None:
    assert is_covered(cut(9).plan, 0)
    assert not is_covered(cut(9).plan, 1)
    assert not is_covered(cut(9, 1).plan, 0)
    assert not is_covered(cut(3).plan, 0)
    # Two copies are asked for; two groups have one.
    assert is_covered(cut(4).plan, 0)
    assert not is_covered(cut(4, small_batches="fewer-copies").plan, 0)
    assert is_covered(cut(9, small_batches="fewer-copies").plan, 0)
