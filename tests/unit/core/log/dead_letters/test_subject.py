"""Which reflection a dead letter is about: named, to be made of a trace, or found in the bytes."""

from combee.adapters.ports import Record
from combee.core.log.dead_letters.subject import reflection_of
from combee.core.names.identity import reflection_id
from combee.process.worker.dead_letters import WRAPPABLE_BYTES, dead_letter
from combee_schemas import topics
from combee_schemas.codec import encode
from combee_schemas.dead_letter import DeadLetter
from combee_schemas.reflection import Reflection
from support.clock import ManualClock
from support.rows import each_row

NAME, ID = "support/refunds", "r-1"
BODY = encode(Reflection(reflection_id=ID, playbook=NAME, key_insight="ask first"))


def letter(topic: str, value: bytes, *, record_id: str = "", playbook: str = "") -> DeadLetter:
    record = Record(topic=topic, partition=0, offset=7, timestamp_ms=0, key=None, value=value)
    outgoing = dead_letter(
        record, service="any", reason="no use", clock=ManualClock(), record_id=record_id, playbook=playbook
    )
    return topics.DEAD_LETTERS.read(outgoing)


@each_row(
    ("topic", "value", "record_id", "expected"),
    [
        ("reflections", b"?", ID, (NAME, ID)),
        ("traces", b"?", "t-1", (NAME, reflection_id(NAME, "t-1"))),
        ("reflections", BODY, "", (NAME, ID)),
        ("reflections", b"unreadable", "", None),
        ("reflections", BODY + b"x" * WRAPPABLE_BYTES, "", None),
        ("commands", BODY, "", None),
    ],
    ids=["named", "of a trace", "by its bytes", "unreadable", "only its head was kept", "no reflection"],
)
def test_a_dead_letter_is_about_one_reflection_or_none(
    topic: str, value: bytes, record_id: str, expected: tuple[str, str] | None
) -> None:
    assert reflection_of(letter(topic, value, record_id=record_id, playbook=NAME)) == expected
