"""From an entry back to what taught it, whatever of it the log still has."""

import asyncio

import pytest

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import FatalError, Outgoing
from combee.log.inspection.lineage import Lineage, last_taught, lineage
from combee_schemas.base import Message
from combee_schemas.batch import Batch, Member
from combee_schemas.codec import encode
from combee_schemas.playbook import Adopted, Change, Entry, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.topics import BATCHES, HISTORY, REFLECTIONS, TRACES, AnyTopic
from combee_schemas.trace import Trace
from support.clock import ManualClock
from support.flat import flat

NAME, ENTRY = "support/refunds", "misc-00001"


async def put(log: MemoryLog, topic: AnyTopic, key: str, *messages: Message) -> list[int]:
    return list(
        await log.produce(*(Outgoing(topic=topic.name, key=key.encode(), value=encode(m)) for m in messages))
    )


def version(number: int, *evidence: str, kind: str = "add") -> Playbook:
    """Return a version whose entry rests on this evidence; without any, it has no entry."""
    entry = Entry(id=ENTRY, section="OTHERS", content="ask first", evidence=evidence)
    change = Change.model_validate({"kind": kind, "entry_id": ENTRY})
    return Playbook(
        name=NAME, version=number, entries=(entry,) if evidence else (), changes=(change,), origin="batch"
    )


async def written(log: MemoryLog, *versions: Playbook) -> None:
    """Write a run, its reflection among others' and unreadable ones, the manifest and the versions."""
    await put(log, TRACES, "t1", Trace(trace_id="t1", playbook=NAME, task="refund?"))
    await log.produce(Outgoing(topic=REFLECTIONS.name, key=NAME.encode(), value=b"unreadable"))
    ids = [("r1", "t1"), ("r2", "expired"), ("r3", None)]
    offsets = await put(
        log, REFLECTIONS, NAME, *(Reflection(reflection_id=r, playbook=NAME, trace_id=t) for r, t in ids)
    )
    members = tuple(Member(offset=o, reflection_id=r) for (r, _), o in zip(ids, offsets, strict=True))
    manifest = flat(
        Batch, batch_id="b", playbook=NAME, sequence=3, seed=1, members=members, copies=2, widths=(1,),
        base_version=0, through_offset=offsets[-1], reason="size", batch_size=3,
    )  # fmt: skip
    await put(log, BATCHES, NAME, manifest)
    await put(log, HISTORY, NAME, *versions)


def found(*versions: Playbook, traces: bool = True, entry: str = ENTRY) -> Lineage:
    async def look() -> Lineage:
        log = MemoryLog(ManualClock())
        await written(log, *versions)
        return await lineage(log, NAME, entry, traces=traces, on_progress=lambda _t, _r, _n: None)

    return asyncio.run(look())


def test_an_entry_leads_to_its_reflections_their_batch_and_their_runs() -> None:
    told = found(version(1, "r1", "r2"))
    assert [(one.reflection_id, one.sequence) for one in told.sources] == [("r1", 3), ("r2", 3)]
    assert [one.trace and one.trace.task for one in told.sources] == ["refund?", None]


def test_evidence_that_a_later_version_no_longer_lists_still_counts() -> None:
    told = found(version(1, "r1"), version(2, "r2", kind="update"))
    assert [one.reflection_id for one in told.sources] == ["r1", "r2"]
    assert [(book.version, change.kind) for book, change in told.changes] == [(1, "add"), (2, "update")]


@pytest.mark.parametrize("kinds", [("adopt",), ("adopt", "add"), ("add",), ()])
def test_an_adopted_entry_names_the_adoption_unless_its_version_was_shortened(kinds: tuple[str, ...]) -> None:
    changes = tuple(
        Change.model_validate({"kind": kind, "entry_id": "" if kind == "adopt" else "misc-00009"})
        for kind in kinds
    )
    told = found(
        version(1, "r1").model_copy(
            update={"adopted": Adopted(line=f"{NAME}@short", version=3), "changes": changes}
        )
    )
    assert [change.kind for _, change in told.changes] == ["adopt"] * ("adopt" in kinds)


def test_what_the_log_does_not_have_is_said_to_be_missing() -> None:
    told = found(version(1, "given by hand"))
    assert [(one.sequence, one.reflection, one.trace) for one in told.sources] == [(None, None, None)]


def test_an_entry_that_left_is_shown_as_it_was() -> None:
    told = found(version(1, "r1"), version(2, kind="remove"))
    assert (told.is_live, told.version, told.entry.content) == (False, 1, "ask first")


def test_without_traces_none_is_looked_for() -> None:
    assert [one.trace for one in found(version(1, "r1"), traces=False).sources] == [None]


def test_an_entry_that_never_was_is_refused() -> None:
    with pytest.raises(FatalError, match="never had an entry nobody-1"):
        found(version(1, "r1"), entry="nobody-1")


def test_what_the_last_batch_taught_is_read_without_reading_the_topics_whole() -> None:
    async def look(manifest_offset: int, *ids: str) -> dict[str, str | None]:
        log = MemoryLog(ManualClock())
        await written(log)
        made = version(1, "r1", "r2").model_copy(update={"manifest_offset": manifest_offset})
        found = await last_taught(log, made, ids)
        return {one: reflection.trace_id for one, reflection in found.items()}

    assert asyncio.run(look(0, "r1", "r2", "of-an-older-batch")) == {"r1": "t1", "r2": "expired"}
    assert asyncio.run(look(-1, "r1")) == {}
