from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from combee.core.batching.limits import BATCH_BYTES, SPAN
from combee.core.batching.plan import Base, plan_batch
from combee.core.batching.window import Close, Share, Waiting, Window, due
from combee.core.log.watermark import Watermark
from combee_schemas.base import Source
from combee_schemas.batch import Member
from combee_schemas.codec import encode
from combee_schemas.plan import LARGEST_BATCH, PlanSettings
from support.rows import each_row

BATCH_SIZE, MAX_WAIT_S = 4, 30.0
PART = BATCH_BYTES // 1_000
"""A thousandth of the bytes that a batch may have."""


def window(*offsets: int, size: int = 10 * PART, seen_at: float = 0.0, flush_through: int = -1) -> Window:
    waiting = [
        Waiting(member=Member(offset=at, reflection_id=f"r-{at}"), size=size, seen_at=seen_at, body=None)
        for at in offsets
    ]
    return Window(waiting=waiting, flush_through=flush_through)


def closing(one: Window, now: float = 0.0, newest: int | None = None) -> Close | None:
    last = max((item.member.offset for item in one.waiting), default=0)
    newest = last if newest is None else newest
    return due(one, BATCH_SIZE, max_wait_s=MAX_WAIT_S, now=now, newest_offset=newest)


# ---- when a window closes


def test_an_empty_window_never_closes() -> None:
    assert closing(Window(flush_through=99), now=1e9, newest=10**9) is None


def test_a_window_closes_when_it_has_the_batch_size() -> None:
    assert closing(window(0, 1, 2)) is None
    assert closing(window(0, 1, 2, 3)) == Close(count=4, reason="size")
    assert closing(window(*range(9))) == Close(count=4, reason="size")


def test_a_window_closes_before_it_gets_too_large() -> None:
    assert closing(window(0, 1, 2, size=400 * PART)) == Close(count=2, reason="bytes")
    assert closing(window(0, 1, size=400 * PART)) is None
    assert closing(window(0, 1, 2, 3, size=250 * PART)) == Close(count=4, reason="size")


def test_one_reflection_larger_than_a_batch_makes_a_batch_of_its_own() -> None:
    assert closing(window(0, 1, size=5_000 * PART)) == Close(count=1, reason="bytes")


def test_one_reflection_alone_waits_however_large_it_is() -> None:
    assert closing(window(0, size=5_000 * PART)) is None


def test_a_window_closes_when_its_oldest_has_waited() -> None:
    waiting = window(0, 1, seen_at=100.0)
    assert closing(waiting, now=129.9) is None
    assert closing(waiting, now=130.0) == Close(count=2, reason="wait")


@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=60).map(sorted),
    st.lists(st.integers(1, 200), min_size=1, max_size=8),
    st.floats(0, 60),
)
def test_whatever_sizes_the_controller_chooses_none_waits_longer_than_the_longest_wait(
    seen_at: list[float], sizes: list[int], later: float
) -> None:
    left = Window(
        waiting=[
            Waiting(member=Member(offset=n, reflection_id=f"r-{n}"), size=1, seen_at=at, body=None)
            for n, at in enumerate(seen_at)
        ]
    )
    now = seen_at[-1] + later
    for turn in range(2 * len(seen_at)):  # the size changes from one closing to the next
        size = sizes[turn % len(sizes)]
        if close := due(left, size, max_wait_s=MAX_WAIT_S, now=now, newest_offset=len(seen_at)):
            left.take(close)
    assert all(now - item.seen_at < MAX_WAIT_S for item in left.waiting)


def test_the_newest_may_wait_as_long_as_it_likes() -> None:
    one = window(0, seen_at=100.0)
    one.waiting += window(1, seen_at=0.0).waiting
    assert closing(one, now=100.0) is None


def test_a_window_closes_when_its_oldest_lies_too_far_back() -> None:
    assert closing(window(0, 1), newest=SPAN - 1) is None
    assert closing(window(0, 1), newest=SPAN) == Close(count=2, reason="span")


def test_a_flush_takes_what_it_names_and_no_more() -> None:
    assert closing(window(3, 5, 8, flush_through=4)) == Close(count=1, reason="flush")
    assert closing(window(3, 5, 8, flush_through=8)) == Close(count=3, reason="flush")
    assert closing(window(3, 5, 8, flush_through=2)) is None


def test_a_count_beats_bytes_beats_time() -> None:
    everything = window(*range(4), size=250 * PART, flush_through=9)
    assert closing(everything, now=1e9, newest=10**6) == Close(count=4, reason="size")
    assert closing(window(0, 1, size=999 * PART, flush_through=9), now=1e9) == Close(count=1, reason="bytes")
    assert closing(window(0, flush_through=9), now=1e9, newest=10**6) == Close(count=1, reason="flush")
    assert closing(window(0), now=1e9, newest=10**6) == Close(count=1, reason="span")


@given(st.lists(st.integers(1, 2_000), max_size=12), st.floats(0, 100), st.integers(-1, 15))
def test_a_batch_is_never_empty_never_larger_than_asked_and_never_beyond_its_bytes(
    sizes: list[int], now: float, flush_through: int
) -> None:
    one = window(flush_through=flush_through)
    for at, size in enumerate(sizes):
        one.waiting += window(at, size=size * PART).waiting
    if (close := closing(one, now)) is None:
        return
    assert 1 <= close.count <= min(len(sizes), BATCH_SIZE)
    assert close.count == 1 or sum(sizes[: close.count]) * PART <= BATCH_BYTES


def test_taking_removes_the_oldest_and_the_duplicates_noted() -> None:
    one = window(0, 1, 2)
    one.dropped = [Member(offset=9, reflection_id="r-0")]
    taken = one.take(Close(count=2, reason="size"))
    assert [item.member.offset for item in taken.items] == [0, 1]
    assert [member.offset for member in taken.dropped] == [9]
    assert [item.member.offset for item in one.waiting] == [2]
    assert one.dropped == []


# ---- the low watermark

steps = st.lists(st.tuples(st.sampled_from(["begin", "done", "pass"]), st.integers(0, 15)), max_size=60)


class Model:
    """The watermark said differently: the lowest offset at or above the start that is not finished."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.fate: dict[int, str] = {}
        self.next = start

    def begin(self, offset: int) -> bool:
        if offset < self.next:
            return False
        self.fate[offset] = "open"
        self.next = offset + 1
        return True

    @property
    def low(self) -> int:
        unfinished = (at for at in range(self.start, self.next) if self.fate.get(at) == "open")
        return next(unfinished, self.next)


@given(st.integers(0, 5), steps)
def test_the_low_watermark_is_the_first_unfinished_offset_and_only_rises(
    start: int, moves: Sequence[tuple[str, int]]
) -> None:
    mark, model, lows = Watermark(start), Model(start), [start]
    for move, offset in moves:
        if move == "begin":
            assert mark.begin(offset) == model.begin(offset)
        elif move == "done":
            mark.done(offset)
            model.fate.pop(offset, None)
        else:
            mark.pass_to(offset)
            model.next = max(model.next, offset)
        lows.append(mark.low)
        assert mark.low == model.low
        assert mark.open == sum(fate == "open" for fate in model.fate.values())
    assert lows == sorted(lows)


@each_row("again", [0, 3, 4])
def test_a_record_that_was_seen_is_not_begun_again(again: int) -> None:
    mark = Watermark(3)
    assert mark.begin(3)
    assert mark.begin(4)
    mark.done(4)
    assert not mark.begin(again)


# ---- shares of sources


def sent(sources: str) -> Window:
    """Return a window of reflections, each of a source with one letter."""
    filled = Window()
    for at, source in enumerate(sources):
        member = Member(offset=at, reflection_id=f"r-{at}")
        filled.add(Waiting(member=member, size=10, seen_at=0.0, body=None, source=source))
    return filled


def waiting(one: Window) -> str:
    return "".join(item.source for item in one.waiting)


def share(batch_size: int, **parts: float) -> Share:
    return Share(batch_size=batch_size, parts={name: Fraction(str(part)) for name, part in parts.items()})


def test_what_a_source_sent_beyond_its_share_waits_where_others_fill_the_batch() -> None:
    filled = sent("aaaaabb")
    taken = filled.hold_over(share(4))
    assert (waiting(filled), sorted(item.member.offset for item in taken)) == ("aabb", [2, 3, 4])
    assert (len(filled), filled.oldest) == (7, 0)
    filled.take(Close(count=4, reason="size"))
    assert (len(filled), filled.oldest) == (3, 2)
    assert filled.take_offsets(0, 2, share(4)) == [2, 3]
    assert (len(filled), filled.oldest) == (1, 4)


def test_a_source_fills_what_the_others_leave_of_a_batch() -> None:
    filled = sent("aaaaab")
    filled.hold_over(share(4))
    assert waiting(filled) == "aaab"
    assert sent("aaa").hold_over(share(4, a=0.5, b=0.5)) == []


def test_what_others_leave_of_a_batch_is_shared_by_those_who_wait() -> None:
    """Of twenty who have taught, three send something: the first of them does not get what all others leave."""
    filled = sent("x" * 20 + "a" * 20 + "b" * 20)
    known = dict.fromkeys("xabcdefghijklmnopqrs", 0.05)
    filled.hold_over(share(20, **known))
    assert Counter(waiting(filled)) == {"x": 7, "a": 7, "b": 6}
    filled.take(Close(count=20, reason="size"))
    read_again = filled.take_offsets(0, 20, share(20, **known))
    assert Counter("xab"[offset // 20] for offset in read_again) == {"x": 7, "a": 7, "b": 6}


def test_a_source_that_is_alone_has_the_whole_window() -> None:
    filled = sent("aaaaa")
    assert filled.hold_over(share(2, a=1)) == []
    assert filled.hold_over(share(2, a=0.5, b=0.5)) != []
    assert waiting(filled) == "aa"


def test_the_share_of_a_busy_source_is_its_part_and_of_a_quiet_one_an_equal_part() -> None:
    filled = sent("a" * 19 + "b" * 6)
    filled.hold_over(share(20, a=0.95, b=0.05))
    assert (waiting(filled).count("a"), waiting(filled).count("b")) == (19, 6)
    filled = sent("b" * 30 + "a" * 19)
    filled.hold_over(share(20, a=0.95, b=0.05))
    assert (waiting(filled).count("a"), waiting(filled).count("b")) == (19, 10)


def test_what_is_read_again_stands_in_its_place() -> None:
    filled = sent("aaab")
    filled.hold_over(share(2))
    filled.take(Close(count=2, reason="size"))
    (offset,) = filled.take_offsets(0, 1, share(2))
    newer = Waiting(member=Member(offset=9, reflection_id="r-9"), size=1, seen_at=0.0, body=None, source="b")
    filled.add(newer)
    older = Member(offset=offset, reflection_id=f"r-{offset}")
    filled.add(Waiting(member=older, size=1, seen_at=0.0, body=None, source="a"))
    assert [item.member.offset for item in filled.waiting] == [1, 9]
    assert filled.oldest == 1


def test_what_waits_beyond_a_share_is_read_again_in_shares_however_early_it_was_sent() -> None:
    filled = sent("x" * 12 + "a" * 9 + "b" * 9)
    filled.hold_over(share(6))
    assert waiting(filled) == "xxaabb"
    filled.take(Close(count=6, reason="size"))
    assert filled.take_offsets(0, 6, share(6)) == [2, 3, 14, 15, 23, 24]
    assert filled.take_offsets(0, 6, None) == [*range(4, 10)], "in a lab the oldest come first"


@given(st.text("abc", max_size=40), st.integers(1, 6))
def test_nothing_of_a_window_is_lost_and_no_source_waits_for_an_empty_batch(sources: str, size: int) -> None:
    filled, taken = sent(sources), list[int]()
    filled.hold_over(share(size))
    while len(filled):
        lack = size - len(filled.waiting)
        for offset in filled.take_offsets(0, lack, share(size)) if lack > 0 else ():
            member = Member(offset=offset, reflection_id=f"r-{offset}")
            filled.add(Waiting(member=member, size=1, seen_at=0.0, body=None, source=sources[offset]))
        assert len(filled.waiting) >= min(size, len(filled))
        batch = filled.take(Close(count=size, reason="size"))
        taken += [item.member.offset for item in batch.items]
    assert sorted(taken) == list(range(len(sources)))


# ---- a manifest fits a record


BEE = "\N{HONEYBEE}"  # four bytes


@each_row("characters", [1, 32, 200])
def test_the_largest_manifest_fits_a_record(characters: int) -> None:
    source = Source(name="s" * 80)
    one = window(*range(LARGEST_BATCH), size=1)
    one.waiting = [
        replace(item, member=item.member.model_copy(update={"reflection_id": BEE * characters}))
        for item in one.waiting
    ]
    for item in one.waiting:
        one.add_repeat(item.member)
    close = due(one, LARGEST_BATCH, max_wait_s=MAX_WAIT_S, now=0.0, newest_offset=0)
    assert close is not None
    taken = one.take(close)
    members = [item.member.model_copy(update={"source": source, "score": {"s": 0.5}}) for item in taken.items]
    batch = plan_batch(
        "p",
        2**40,
        members,
        [500] * len(members),
        settings=PlanSettings(method="ace", copies=2, fan_in=8, max_levels=4, group_bytes=100_000),
        base=Base(
            version=2**40,
            sequence=2**40,
        ),
        reason="size",
        batch_size=LARGEST_BATCH,
        through_offset=2**40,
        dropped=taken.dropped,
    )
    assert len(taken.items) >= 300
    assert taken.dropped
    assert encode(batch)
