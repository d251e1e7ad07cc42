from collections import Counter
from itertools import pairwise
from math import isqrt
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from combee.core.batching import shuffle, tree
from combee.core.batching.limits import PRODUCT
from combee.core.batching.plan import Base, deal_batch, make_groups, plan_batch
from combee.core.names import identity
from combee_schemas import digests
from combee_schemas.batch import Batch, Member
from combee_schemas.codec import encode
from combee_schemas.plan import PlanSettings
from combee_schemas.reflection import Reflection
from combee_schemas.topics import GROUPS
from support.rows import each_row

seeds = st.integers(0, 2**63 - 1)


@st.composite
def deals(draw: st.DrawFn) -> tuple[int, int, int, int]:
    groups = draw(st.integers(1, 20))
    return draw(st.integers(0, 200)), draw(st.integers(1, groups)), groups, draw(seeds)


# ---- the augmented shuffle


@given(deals())
def test_groups_are_balanced_and_every_reflection_is_in_exactly_as_many_of_them_as_asked(
    arguments: tuple[int, int, int, int],
) -> None:
    reflections, copies, groups, _ = arguments
    dealt = shuffle.deal(*arguments)
    assert len(dealt) == groups
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
    assert all(len(set(group)) == len(group) for group in dealt)
    assert Counter(i for group in dealt for i in group) == dict.fromkeys(range(reflections), copies)


def test_the_deal_of_a_seed_never_changes() -> None:
    # Frozen: replaying a manifest of last year must give its groups.
    assert shuffle.deal(9, 2, 3, 42) == ((3, 6, 4, 8, 5, 1), (6, 7, 4, 2, 0, 1), (3, 7, 8, 2, 5, 0))


def test_another_seed_mixes_differently() -> None:
    assert len({shuffle.deal(40, 2, 6, seed) for seed in range(50)}) == 50


def test_any_two_reflections_meet_about_equally_often() -> None:
    meetings = Counter(
        pair
        for seed in range(300)
        for group in shuffle.deal(12, 2, 3, seed)
        for pair in ((a, b) for a in group for b in group if a < b)
    )
    assert len(meetings) == 66
    assert max(meetings.values()) < 1.5 * min(meetings.values())


@each_row(("copies", "groups"), [(0, 3), (4, 3), (-1, 1)])
def test_more_copies_than_groups_are_refused(copies: int, groups: int) -> None:
    with pytest.raises(ValueError, match="copies must be between"):
        shuffle.deal(10, copies, groups, 0)


@each_row(("count", "groups"), [(0, 1), (1, 1), (3, 1), (4, 2), (8, 2), (9, 3), (40, 6), (84, 9)])
def test_there_are_as_many_groups_as_the_paper_says(count: int, groups: int) -> None:
    assert shuffle.group_count(count) == groups


@each_row(("count", "copies"), [(1, 1), (3, 1), (4, 2), (40, 2)])
def test_fewer_than_four_reflections_are_not_copied(count: int, copies: int) -> None:
    assert shuffle.effective_copies(count, 2, shuffle.group_count(count), "paper") == copies


@given(st.integers(1, 200), st.integers(1, 8), st.integers(1, 40))
def test_there_are_as_many_copies_as_asked_but_fewer_than_groups(
    count: int, copies: int, groups: int
) -> None:
    made = shuffle.effective_copies(count, copies, groups)
    assert made == 1 if count < 4 or groups == 1 else made == min(copies, groups - 1)


# ---- the tree


@st.composite
def trees(draw: st.DrawFn) -> tuple[int, ...]:
    return tree.plan_widths(draw(st.integers(1, 300)), draw(st.integers(2, 40)), draw(st.integers(2, 4)))


@given(st.integers(1, 3000), st.integers(2, 64), st.integers(2, 4))
def test_a_tree_shrinks_to_one_root_within_the_allowed_height(groups: int, fan_in: int, levels: int) -> None:
    widths = tree.plan_widths(groups, fan_in, levels)
    assert widths[0] == groups
    assert tree.is_valid(widths, levels)
    assert all(below > above for below, above in pairwise(widths))


@given(trees())
def test_children_partition_the_level_below_in_order_and_know_their_parents(widths: tuple[int, ...]) -> None:
    for level in range(1, len(widths)):
        children = [tree.child_indices(widths, level, index) for index in range(widths[level])]
        assert [one for some in children for one in some] == list(range(widths[level - 1]))
        parents = [tree.parent_index(widths, level - 1, child) for child in range(widths[level - 1])]
        assert parents == [index for index, some in enumerate(children) for _ in some]
        sizes = [len(some) for some in children]
        assert min(sizes) >= 1
        assert max(sizes) - min(sizes) <= 1


@given(trees())
def test_every_leaf_knows_its_way_up_to_the_one_root(widths: tuple[int, ...]) -> None:
    for index in range(widths[0]):
        node: tree.Node | None = tree.node_at("b", widths, 0, index)
        for level in range(len(widths)):
            assert node is not None
            assert (node.id, node.level) == (identity.node_id("b", level, node.index), level)
            assert level == 0 or index in tree.child_indices(widths, level, node.index)
            index, node = node.index, node.parent  # noqa: PLW2901 - it goes up
        assert (index, node) == (0, None)


@given(st.integers(2, 300), st.integers(2, 40), st.integers(2, 4))
def test_no_node_has_more_children_than_the_fan_in_unless_the_tree_would_grow_too_high(
    groups: int, fan_in: int, levels: int
) -> None:
    widths = tree.plan_widths(groups, fan_in, levels)
    most = max(
        len(tree.child_indices(widths, level, index))
        for level in range(1, len(widths))
        for index in range(widths[level])
    )
    assert most <= fan_in or fan_in ** (levels - 1) < groups


@each_row(
    ("groups", "fan_in", "levels", "widths"),
    [
        (1, 32, 4, (1,)),
        (6, 32, 4, (6, 1)),
        (32, 32, 4, (32, 1)),
        (33, 32, 4, (33, 2, 1)),
        (9, 2, 4, (9, 3, 1)),
        (8, 2, 4, (8, 4, 2, 1)),
        (70, 32, 2, (70, 1)),
    ],
)
def test_the_shape_of_a_tree(groups: int, fan_in: int, levels: int, widths: tuple[int, ...]) -> None:
    assert tree.plan_widths(groups, fan_in, levels) == widths


def test_several_groups_need_two_levels() -> None:
    with pytest.raises(ValueError, match="max_levels"):
        tree.plan_widths(2, 2, 1)


@each_row("widths", [(), (0,), (2,), (1, 1), (2, 3, 1), (-1, 1), (5, 4, 3, 2, 1), (10**6, 1)])
def test_impossible_trees_are_recognised(widths: tuple[int, ...]) -> None:
    assert not tree.is_valid(widths, 4)


@given(
    st.integers(2, 3000), st.integers(2, 64), st.integers(2, 8), st.integers(0, 10**7), st.integers(1, 10**5)
)
def test_a_tree_by_tokens_is_a_tree_and_no_flatter_than_without(
    groups: int, fan_in: int, levels: int, tokens: int, most: int
) -> None:
    widths = tree.plan_widths(groups, fan_in, levels, tokens=tokens, most=most)
    assert widths[0] == groups
    assert tree.is_valid(widths, levels)
    assert len(widths) >= len(tree.plan_widths(groups, fan_in, levels))


@given(st.integers(2, 3000), st.integers(2, 64), st.integers(0, 10**6), st.integers(1, 10**5))
def test_no_combine_reads_too_much_while_the_tree_may_grow_and_two_children_fit(
    groups: int, fan_in: int, tokens: int, most: int
) -> None:
    widths = tree.plan_widths(groups, fan_in, 40, tokens=tokens, most=most)
    for level, reads in enumerate(tree.reads(widths, tokens), 1):
        assert reads <= most or widths[level] == -(-widths[level - 1] // 2)


def test_tokens_give_way_before_the_fan_in_where_the_tree_may_not_grow() -> None:
    widths = tree.plan_widths(900, 30, 3, tokens=10**6, most=100)
    assert widths == (900, 30, 1)


# ---- the plan


POLICY = PlanSettings(copies=2, fan_in=32, max_levels=4, group_bytes=10_000)


def member(offset: int) -> Member:
    return Member(offset=offset, reflection_id=f"r-{offset}")


def planned(
    sizes: list[int],
    policy: PlanSettings = POLICY,
    playbook: str = "p",
    sequence: int = 1,
    closed_at_ms: int = 0,
) -> Batch:
    return plan_batch(
        playbook,
        sequence,
        [member(offset) for offset in range(len(sizes))],
        sizes,
        settings=policy,
        base=Base(version=3, sequence=3),
        reason="size",
        batch_size=len(sizes),
        through_offset=len(sizes) - 1,
        closed_at_ms=closed_at_ms,
    )


sizes_of = st.lists(st.integers(1, 5_000), min_size=1, max_size=60)


@given(sizes_of, st.integers(0, 2**40))
def test_a_plan_is_byte_identical_however_often_it_is_made_and_time_enters_its_record_alone(
    sizes: list[int], closed_at_ms: int
) -> None:
    late = planned(sizes, closed_at_ms=closed_at_ms)
    assert encode(late) == encode(planned(sizes, closed_at_ms=closed_at_ms))
    assert late.model_copy(update={"plan": late.plan.model_copy(update={"closed_at_ms": 0})}) == planned(
        sizes
    )
    assert deal_batch(late) == deal_batch(planned(sizes))


@given(sizes_of, st.integers(100, 20_000))
@settings(max_examples=30)
def test_no_group_is_too_large_to_send_unless_its_members_are(sizes: list[int], group_bytes: int) -> None:
    policy = PlanSettings(copies=2, fan_in=32, max_levels=4, group_bytes=group_bytes)
    batch = planned(sizes, policy)
    largest = max(sum(sizes[one.offset] for one in group) for group in deal_batch(batch))
    assert largest <= group_bytes or batch.plan.widths[0] >= len(sizes)
    assert batch.plan.widths[0] >= (isqrt(len(sizes)) if len(sizes) >= 4 else 1)


def bounded(tokens: int | None, **fields: Any) -> PlanSettings:
    defaults = {"copies": 2, "fan_in": 32, "max_levels": 4, "group_bytes": 700 << 10}
    return PlanSettings(**{**defaults, **fields}, aggregate_tokens=tokens)


def loads(sizes: list[int], batch: Batch) -> list[int]:
    return [sum(sizes[one.offset] for one in group) for group in deal_batch(batch)]


@example([1, 1, 1, 5000], 1_250, 5)
@given(sizes_of, st.integers(1_250, 5_000), st.integers(1, 5))
@settings(max_examples=40)
def test_every_group_is_within_the_tokens_whenever_a_single_member_is(
    sizes: list[int], tokens: int, copies: int
) -> None:
    batch = planned(sizes, bounded(tokens, copies=copies))
    assert max(loads(sizes, batch)) <= tokens * 4
    assert Counter(one.offset for group in deal_batch(batch) for one in group) == dict.fromkeys(
        range(len(sizes)), batch.copies
    )
    assert batch.copies == (min(copies, batch.plan.widths[0]) if len(sizes) >= 4 else 1)


@given(sizes_of, st.integers(5_000, 20_000))
@settings(max_examples=40)
def test_every_group_is_within_the_bytes_whenever_a_single_member_is(sizes: list[int], most: int) -> None:
    batch = planned(sizes, bounded(None, group_bytes=most))
    assert max(loads(sizes, batch)) <= most


@given(st.integers(1, 60), st.integers(1, 8))
def test_a_batch_is_one_call_only_where_each_group_of_the_paper_would_hold_all_of_it(
    count: int, copies: int
) -> None:
    policy = bounded(None, copies=copies)
    small = planned([200] * count, policy.model_copy(update={"small_batches": "one-call"}))
    paper = planned([200] * count, policy)
    if all(len(group) == count for group in deal_batch(paper)):
        assert (small.plan.widths, small.copies) == ((1,), 1)
    else:
        assert (small.plan.widths, small.copies) == (paper.plan.widths, paper.copies)


FEWER = POLICY.model_copy(update={"small_batches": "fewer-copies"})


@given(st.integers(1, 60), st.integers(1, 8), st.integers(0, 80), st.integers(500, 20_000))
@settings(max_examples=60)
def test_a_new_plan_makes_fewer_copies_than_groups_or_says_why_not(
    count: int, copies: int, groups: int, tokens: int
) -> None:
    assert PRODUCT.small_batches == "fewer-copies"
    policy = PRODUCT.model_copy(update={"copies": copies, "groups": groups, "aggregate_tokens": tokens})
    batch = planned([200] * count, policy)
    if batch.plan.widths[0] == 1:
        assert batch.copies == 1
        assert "too few" in batch.shape_reason or "k = 1 as set" in batch.shape_reason
        return
    assert batch.copies < batch.plan.widths[0]
    assert all(len(group) < count for group in deal_batch(batch))
    less = f"p = {batch.copies} instead of {copies}, so that {batch.plan.widths[0]} groups differ"
    assert (less in batch.shape_reason) is (batch.copies < copies)


@given(st.integers(4, 60), st.integers(1, 8))
def test_where_copies_are_below_groups_anyway_the_plan_is_the_papers(count: int, copies: int) -> None:
    paper = planned([20] * count, POLICY.model_copy(update={"copies": copies}))
    fewer = planned([20] * count, FEWER.model_copy(update={"copies": copies}))
    assert fewer.plan.widths == paper.plan.widths
    if copies < paper.plan.widths[0]:
        assert deal_batch(fewer) == deal_batch(paper)
        assert fewer.shape_reason == paper.shape_reason


def test_a_recorded_plan_is_made_again_as_it_was() -> None:
    """Frozen: twelve reflections with three copies in the paper's shape and in one call, and the hashes of both."""
    policy = POLICY.model_copy(update={"copies": 3})
    paper = planned([200] * 12, policy)
    one_call = planned([200] * 12, policy.model_copy(update={"small_batches": "one-call"}))
    assert (paper.copies, paper.plan.widths, paper.shape_reason) == (3, (3, 1), "k = 3 = ⌊√12⌋; two levels")
    assert (one_call.copies, one_call.plan.widths, one_call.shape_reason) == (
        1,
        (1,),
        "k = 1: each of 3 groups would hold all 12 reflections",
    )
    assert paper.plan.sha256 == "07e433c869194e4be558e4116281a0667d212a84aec0659092076049eababc62"
    assert one_call.plan.sha256 == "385231455ff4cecf1d891ce1437afbfe86aace7ab54a3079fc1d250e3577f797"


@given(st.integers(1, 60), st.integers(1, 8), st.integers(1, 80))
def test_a_batch_has_the_groups_that_are_asked_for_at_most_one_per_reflection(
    count: int, copies: int, groups: int
) -> None:
    batch = planned([200] * count, bounded(None, copies=copies, groups=groups, fan_in=99))
    assert batch.plan.widths[0] == (min(groups, count) if count >= 4 else 1)
    assert all(deal_batch(batch))
    assert Counter(one.offset for group in deal_batch(batch) for one in group) == dict.fromkeys(
        range(count), batch.copies
    )


def test_groups_that_are_asked_for_are_in_the_hash_and_the_papers_are_hashed_as_ever() -> None:
    plain, asked = planned([200] * 9), planned([200] * 9, POLICY.model_copy(update={"groups": 3}))
    assert plain.plan.widths == asked.plan.widths
    assert plain.plan.sha256 != asked.plan.sha256
    assert "groups" not in plain.plan.settings.model_dump()


def test_a_small_batch_that_is_too_long_for_one_call_is_cut_as_the_paper_cuts_it() -> None:
    paper = bounded(1_000, copies=2)
    small = paper.model_copy(update={"small_batches": "one-call"})
    assert planned([1_000] * 6, small).plan.widths == planned([1_000] * 6, paper).plan.widths != (1,)


@given(st.integers(1, 60), st.integers(1, 8), st.integers(2, 40))
def test_without_a_token_bound_the_shape_is_the_papers(count: int, copies: int, fan_in: int) -> None:
    batch = planned([200] * count, bounded(None, copies=copies, fan_in=fan_in))
    groups = shuffle.group_count(count)
    assert batch.plan.widths == tree.plan_widths(groups, fan_in, 4)
    assert batch.copies == shuffle.effective_copies(count, copies, groups, "paper")


@given(sizes_of)
@settings(max_examples=25)
def test_more_room_for_tokens_than_needed_changes_nothing(sizes: list[int]) -> None:
    paper, roomy = planned(sizes, bounded(None)), planned(sizes, bounded(10**6))
    assert roomy.plan.widths == paper.plan.widths
    assert deal_batch(roomy) == deal_batch(paper)


def test_one_reflection_that_is_too_long_alone_does_not_multiply_the_groups() -> None:
    batch = planned([9_000, *[100] * 39], bounded(1_000))
    assert batch.plan.widths[0] == 6


@each_row(
    ("sizes", "policy", "reason"),
    [
        ([1_000] * 3, bounded(32_000), "k = 1: 3 are too few to be copied"),
        ([1_000] * 40, bounded(None), "k = 6 = ⌊√40⌋; two levels"),
        ([1_000] * 40, bounded(None, groups=5), "k = 5 as set; two levels"),
        (
            [1_000] * 12,
            bounded(None, copies=3, small_batches="fewer-copies"),
            "k = 3 = ⌊√12⌋; p = 2 instead of 3, so that 3 groups differ; two levels",
        ),
        (
            [1_000] * 12,
            bounded(None, groups=1, small_batches="fewer-copies"),
            "k = 1 as set; p = 1 instead of 2: one group",
        ),
        (
            [1_000] * 40,
            bounded(32_000),
            "k = 6 = ⌊√40⌋; two levels: 6 proposals of about 833 tokens fit in 32,000",
        ),
        (
            [1_000] * 100,
            bounded(3_500),
            (
                "k = 15 instead of 10: with 10, a group would read more than 3,500 tokens; three levels because"
                " 15 proposals of about 833 tokens exceed 3,500"
            ),
        ),
        (
            [1_000] * 100,
            bounded(None, group_bytes=14 << 10),
            "k = 15 instead of 10: with 10, a group would be larger than 14 KiB; two levels",
        ),
        ([100] * 40, bounded(None, fan_in=3), "k = 6 = ⌊√40⌋; three levels because a node takes at most 3 children"),
        (
            [1_000] * 100,
            bounded(500, max_levels=3),
            (
                "k = 100 instead of 10: with 10, a group would read more than 500 tokens; three levels:"
                " 100 proposals of about 125 tokens exceed 500; no deeper, though a combine may read 3,125 tokens"
            ),
        ),
    ],
    ids=["few", "paper", "set", "copies", "one group", "room", "tokens", "bytes", "fan-in", "as high as may be"],
)  # fmt: skip
def test_a_manifest_says_why_its_tree_has_its_shape(
    sizes: list[int], policy: PlanSettings, reason: str
) -> None:
    assert planned(sizes, policy).shape_reason == reason


TIGHT = {
    "equal": [2_000] * 2_000,
    "mixed": [1 + n * 7_919 % 4_000 for n in range(2_000)],
    "one giant": [31_000, *[200] * 1_999],
    "some large": [15_000 if n % 10 == 0 else 200 for n in range(2_000)],
    "heavy tail": [200 * 2_000 // (n + 1) for n in range(2_000)],
}


@pytest.mark.parametrize("sizes", TIGHT.values(), ids=TIGHT.keys())
def test_a_full_batch_with_a_tight_bound_is_planned_after_few_deals(
    sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    dealt: list[int] = []

    def counting(reflections: int, copies: int, groups: int, seed: int) -> tuple[tuple[int, ...], ...]:
        dealt.append(groups)
        return deal(reflections, copies, groups, seed)

    deal = shuffle.deal
    monkeypatch.setattr(shuffle, "deal", counting)
    planned(sizes, bounded(8_000))
    assert len(dealt) <= 6  # a deal takes about 5 ms


def test_ten_thousand_reflections_can_be_planned_and_dealt() -> None:
    batch = planned([1_000] * 10_000, bounded(8_000, max_levels=6))
    assert tree.is_valid(batch.plan.widths, 6)
    bodies = {n: Reflection(reflection_id=f"r-{n}", playbook="p") for n in range(10_000)}
    assert sum(len(group.members) for group in make_groups(batch, 0, bodies)) == 20_000


def test_the_seed_depends_on_playbook_sequence_and_members_alone() -> None:
    base = planned([1] * 9)
    assert planned([2] * 9).seed == base.seed
    assert planned([1] * 9, sequence=2).seed != base.seed
    assert planned([1] * 9, playbook="q").seed != base.seed
    assert planned([1] * 10).seed != base.seed


def test_groups_carry_their_reflections_and_spread_over_partitions() -> None:
    batch = planned([10] * 9)
    bodies = {n: Reflection(reflection_id=f"r-{n}", playbook="p") for n in range(9)}
    groups = make_groups(batch, 77, bodies)
    assert [GROUPS.place(group, 3) for group in groups] in ([0, 1, 2], [1, 2, 0], [2, 0, 1])
    for index, (group, dealt) in enumerate(zip(groups, deal_batch(batch), strict=True)):
        assert (group.index, group.node_id) == (index, identity.node_id(batch.plan.batch_id, 0, index))
        assert [(one.offset, one.reflection) for one in group.members] == [
            (one.offset, bodies[one.offset]) for one in dealt
        ]
        assert (group.manifest_offset, group.plan.base_version) == (77, 3)


# ---- names


def test_ids_never_change() -> None:
    # Frozen: another id for the same node would be asked and counted again.
    assert identity.batch_id("support/refunds", 1) == "b-667c0ea9646ca52d2c4d802b"
    assert identity.node_id("b-667c0ea9646ca52d2c4d802b", 1, 0) == "n-98107749dc68e5cb412caea5"
    assert identity.reflection_id("support/refunds", "t-1") == "r-7812dec0ae5fe9fd3242cc12"


@given(
    st.lists(st.text(max_size=5), min_size=1, max_size=4),
    st.lists(st.text(max_size=5), min_size=1, max_size=4),
)
def test_different_parts_have_different_digests(one: list[str], other: list[str]) -> None:
    assert (digests.digest(*one) == digests.digest(*other)) == (one == other)


@given(st.text(max_size=20), st.integers(1, 50))
def test_a_bucket_is_one_of_the_buckets(text: str, buckets: int) -> None:
    assert 0 <= digests.spread(text, buckets) < buckets
