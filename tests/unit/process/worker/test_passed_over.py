"""Records passed over: what is committed, and from where they are read again."""

from combee.adapters.ports import TopicPartition
from combee.process.worker.passed_over import NOTE_BYTES, Note, PassedOver, note_from, note_text

ONE, TWO = TopicPartition(topic="traces", partition=1), TopicPartition(topic="traces", partition=2)


def passed(*paused: str) -> PassedOver:
    return PassedOver(lambda playbook: playbook in paused)


def test_the_committed_offset_stays_at_the_first_record_passed_over_and_the_note_says_how_far_the_loop_came() -> (
    None
):
    over = passed("a", "b")
    assert over.add(ONE, "a", 7)
    assert not over.add(ONE, "a", 5)
    over.add(ONE, "b", 9)
    assert (over.low(ONE, 20), over.low(TWO, 20)) == (5, 20)
    assert note_from(over.note(ONE, 20), 5) == Note(20, {"a": 5, "b": 9})
    assert over.note(TWO, 20) == ""


def test_what_goes_on_is_read_from_its_first_record_and_forgotten_when_that_is_done() -> None:
    over = passed("b")
    over.add(ONE, "a", 5)
    over.add(ONE, "b", 9)
    assert over.due() == {"a": {ONE: 5}}
    over.begin(ONE, "a")
    over.reached(ONE, "a", 8)
    assert over.low(ONE, 20) == 8
    over.end(ONE, "a", 20)
    assert over.due() == {}
    assert over.low(ONE, 20) == 9


def test_what_is_passed_over_while_its_playbook_is_read_again_is_not_forgotten() -> None:
    over = passed()
    over.add(ONE, "a", 5)
    over.begin(ONE, "a")
    over.add(ONE, "a", 25)
    over.end(ONE, "a", 20)
    assert over.low(ONE, 30) == 20


def test_a_new_owner_takes_over_what_the_note_says_and_forgets_others_partitions() -> None:
    over = passed()
    over.add(TWO, "a", 3)
    over.assign({ONE}, [(ONE, Note(20, {"a": 5}))])
    assert over.due() == {"a": {ONE: 5}}
    assert over.low(TWO, 9) == 9


def test_a_note_without_room_or_sense_makes_a_restart_read_everything_again() -> None:
    many = Note(20, {f"playbook-{n}": n for n in range(NOTE_BYTES // 10)})
    assert note_text(many) == ""
    for text in ("", "{}", "x", '{"next": 3, "passed": {}}'):
        assert note_from(text, 5) == Note(5)
