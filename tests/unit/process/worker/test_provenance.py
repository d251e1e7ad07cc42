"""What a service keeps of a run that it reads."""

from combee.core.playbook.budget import ENTRIES_BYTES, ENTRY_BYTES
from combee.process.worker.provenance import MAX_NAMES, MAX_TAGS, MAX_TEXTS, Provenance
from combee_schemas import topics
from combee_schemas.base import Shown
from combee_schemas.codec import encode
from combee_schemas.records import Record
from combee_schemas.reflection import BulletTag, Reflection
from combee_schemas.trace import Trace

IDS = tuple(f"{n:05}" for n in range(2 * MAX_NAMES))
SHOWN = Shown(version=1, entry_ids=IDS, digests=IDS)


def record_of(message: Trace | Reflection) -> Record:
    topic = topics.TRACES if isinstance(message, Trace) else topics.REFLECTIONS
    return Record(
        topic=topic.name, partition=0, offset=0, key=b"p", value=encode(message), timestamp_ms=0, headers=()
    )


def test_of_very_many_names_in_a_run_a_service_keeps_the_first() -> None:
    """Decoded they took thirty times their bytes: some hundred records were more than a service may use."""
    said = dict.fromkeys(IDS, "")
    trace = Trace(trace_id="t", playbook="p", task="x", bullet_ids=IDS, shown=SHOWN, metadata=said)
    tags = tuple(BulletTag(id=one, tag="helpful") for one in IDS)
    lesson = Reflection(
        reflection_id="r", playbook="p", bullet_ids=IDS, shown=SHOWN, side_info=said, bullet_tags=tags
    )
    kept, learned = Provenance().trace(record_of(trace)), Provenance().reflection(record_of(lesson))
    assert learned.bullet_tags == tags[:MAX_TAGS]
    for run, texts in ((kept, kept.metadata), (learned, learned.side_info)):
        assert run.bullet_ids == IDS[:MAX_NAMES]
        assert run.shown == Shown(version=1, entry_ids=IDS[:MAX_NAMES], digests=IDS[:MAX_NAMES])
        assert tuple(texts) == IDS[:MAX_TEXTS]


def test_a_run_that_was_shown_a_whole_playbook_is_read_as_it_is() -> None:
    assert ENTRIES_BYTES / (ENTRY_BYTES + 50) < MAX_NAMES
    ids = IDS[:MAX_TAGS]
    lesson = Reflection(
        reflection_id="r",
        playbook="p",
        bullet_ids=ids,
        shown=Shown(version=1, entry_ids=ids),
        bullet_tags=tuple(BulletTag(id=one, tag="helpful") for one in ids),
    )
    assert Provenance().reflection(record_of(lesson)) == lesson
