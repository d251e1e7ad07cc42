from hypothesis import given
from hypothesis import strategies as st

from combee.core.batching.window import Agenda, IndexedHeap, Waiting, Window
from combee_schemas.batch import Member

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


def waiting(offset: int, seen_at: float) -> Window:
    member = Member(offset=offset, reflection_id=f"r-{offset}")
    return Window(waiting=[Waiting(member=member, size=1, seen_at=seen_at, body=None)])


def test_a_line_is_looked_at_once_when_it_changed_and_again_when_its_first_reflection_is_old() -> None:
    agenda, window = Agenda(), waiting(5, 10.0)
    agenda.note("a", window)
    assert (agenda.oldest, agenda.waiting_since) == (5, 10.0)
    assert [agenda.take(seen_by=0.0, before=0) for _ in range(2)] == [{"a"}, set()]
    assert [agenda.take(seen_by=10.0, before=0) for _ in range(2)] == [{"a"}, set()], "old by time"
    agenda.remind("a", window)
    assert [agenda.take(seen_by=0.0, before=5) for _ in range(2)] == [{"a"}, set()], "old by offset"
    agenda.note("a", Window())
    assert (agenda.oldest, agenda.take(seen_by=99.0, before=99)) == (None, {"a"})


def test_a_blocked_line_is_looked_at_only_when_that_is_asked_for() -> None:
    agenda = Agenda(blocked={"a"})
    assert agenda.take(seen_by=0.0, before=0) == set()
    agenda.look_again()
    assert [agenda.take(seen_by=0.0, before=0) for _ in range(2)] == [{"a"}, set()]
