from hypothesis import given
from hypothesis import strategies as st

from combee.core.batching.window import IndexedHeap

CHANGES = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 9)), max_size=40)


@given(CHANGES, st.integers(0, 9))
def test_it_is_a_dictionary_that_knows_its_smallest_numbers(
    changes: list[tuple[str, int | None]], limit: int
) -> None:
    heap, known = IndexedHeap[str, int](), dict[str, int]()
    for key, number in changes:
        heap.set(key, number)
        known.pop(key, None)
        if number is not None:
            known[key] = number
        assert heap.smallest() == min(known.values(), default=None)
    taken = heap.take_through(limit)
    assert sorted(taken) == sorted(key for key, number in known.items() if number <= limit)
    assert [known[key] for key in taken] == sorted(known[key] for key in taken)
    left = [number for number in known.values() if number > limit]
    assert heap.smallest() == min(left, default=None)


def test_what_was_replaced_does_not_pile_up() -> None:
    heap = IndexedHeap[str, int]()
    for number in range(1000):
        heap.set("a", number)
    assert len(heap._heap) < 100
    assert heap.smallest() == 999
