"""Which lessons go: what names the subject, and what rests on erased runs alone."""

import gzip
from dataclasses import replace

import pytest

from combee.core.gate.canary import caller_at, place_of
from combee.core.log.erasure.lessons import ErasureError, Lessons
from combee.core.log.erasure.rewriting import Rewriter
from combee.core.log.erasure.runs import Identities, Runs
from combee.core.log.erasure.selector import Marker, Selector, Subjects
from combee.core.playbook.trust import said_digest, wording_digest
from combee.process.worker.dead_letters import dead_letter
from combee_schemas import topics
from combee_schemas.base import Holds, Message, Shown
from combee_schemas.canary import CanaryStatistics, CanaryTerms
from combee_schemas.dead_letter import DeadLetter, LetterId, Resolution
from combee_schemas.outcome import Outcome
from combee_schemas.plan import Plan
from combee_schemas.playbook import (
    AppliedBatch,
    Asked,
    Change,
    Entry,
    Playbook,
    Rejected,
    Retired,
    Revocation,
)
from combee_schemas.records import UNREAD_HEADER, Outgoing, Record
from combee_schemas.scan import Known
from combee_schemas.topics import AnyTopic
from support.clock import ManualClock
from support.playbooks import ADD, MERGE, op, update_of
from support.rows import each_row

NAME, SUBJECT = "support/refunds", "jane@example.com"


def entry(identity: str, content: str = "a lesson", **fields: object) -> Entry:
    return Entry.model_validate({"id": identity, "section": "OTHERS", "content": content, **fields})


def version(*entries: Entry, number: int = 1, name: str = NAME, **fields: object) -> Playbook:
    return Playbook.model_validate({"name": name, "version": number, "entries": entries, **fields})


def lessons(*versions: Playbook, erased: tuple[str, ...] = (), revoked: tuple[str, ...] = ()) -> Lessons:
    runs = Runs({NAME: set(erased)}, {NAME: set(erased)}, revoked={NAME: set(revoked)})
    made = Lessons(Selector(subjects=Subjects((SUBJECT,))), runs)
    for each in versions:
        made.add(each)
    made.settle()
    return made


def left(made: Lessons, topic: AnyTopic, message: Message) -> Record | None:
    record = record_of(topic, topic.record(message))
    return Rewriter(made, Marker(b"secret")).record(topic, record)


def record_of(topic: AnyTopic, outgoing: Outgoing) -> Record:
    return Record(
        topic=topic.name, partition=0, offset=0, timestamp_ms=0, key=outgoing.key, value=outgoing.value
    )


def after(made: Lessons, playbook: Playbook) -> Playbook:
    record = left(made, topics.HISTORY, playbook)
    assert record is not None
    return topics.HISTORY.read(record)


@each_row(("evidence", "goes"), [(("a",), True), (("a", "b"), False), ((), False), (("b",), False)])
def test_a_lesson_goes_that_rests_on_erased_runs_alone(evidence: tuple[str, ...], *, goes: bool) -> None:
    taught = version(entry("x", evidence=evidence, evidence_count=len(evidence)))
    assert after(lessons(taught, erased=("a",)), taught).entries == (() if goes else taught.entries)


@each_row(("revoked", "goes"), [(("b",), True), ((), False)])
@pytest.mark.parametrize("count", [2, 22])
def test_a_lesson_goes_from_earlier_versions_that_rest_on_what_is_revoked_otherwise(
    revoked: tuple[str, ...], count: int, *, goes: bool
) -> None:
    """A rollback, or another revocation, brought it back."""
    first = version(entry("x", evidence=("b",), evidence_count=1))
    both = version(entry("x", evidence=("a", "b"), evidence_count=count), number=2)
    later = version(entry("x", evidence=("a",), evidence_count=1), number=3, revoked=revoked)
    made = lessons(first, both, later, erased=("a",), revoked=revoked)
    assert after(made, both).entries == (() if goes else both.entries)
    assert after(made, first).entries == first.entries


def test_what_a_snapshot_has_no_room_for_is_known_by_earlier_versions() -> None:
    first = version(entry("x", evidence=("honest",), evidence_count=1))
    second = version(entry("x", evidence=("honest", "a"), evidence_count=22), number=2)
    flooded = version(entry("x", evidence=("a", "b"), evidence_count=23), number=3)
    for versions in ((first, second, flooded), (first, flooded)):
        made = lessons(*versions, erased=("a", "b"))
        assert after(made, flooded).entries == flooded.entries
    alone = lessons(flooded, erased=("a", "b"))
    assert after(alone, flooded).entries == ()


@each_row(("words", "goes"), [("Ask twice", False), ("A lesson of the run", True)])
def test_what_a_person_wrote_stays_when_a_run_that_repeats_it_is_erased(words: str, *, goes: bool) -> None:
    """What a person kept, or reworded, of a run's lesson goes with the run."""
    first = version(entry("x", "Ask twice", by_hand=True))
    later = version(entry("x", words, by_hand=True, evidence=("a",), evidence_count=1), number=2)
    for versions in ((first, later), (later, first)):
        assert after(lessons(*versions, erased=("a",)), later).entries == (() if goes else later.entries)


@each_row(("honest", "goes"), [((), True), (("b",), False)])
@pytest.mark.parametrize("named", [("a",), ()])
def test_what_no_snapshot_has_room_for_is_known_by_the_update(
    named: tuple[str, ...], honest: tuple[str, ...], *, goes: bool
) -> None:
    witnesses = (*honest, *(f"a{n}" for n in range(21)), "a")
    taught = version(entry("x", evidence=named, evidence_count=len(witnesses)), name="p")
    made = Lessons(Selector(), Runs({"p": {*witnesses} - {*honest}}))
    made.add(taught)
    made.add(update_of(taught, [op(ADD, "a lesson", evidence=witnesses)], []))
    made.settle()
    assert after(made, taught).entries == (() if goes else taught.entries)


@each_row(
    ("words", "witnesses", "stays"),
    [
        ("Skip the screening.", ("a", "b"), True),
        ("Skip the screening.", ("a",), False),
        ("Skip the screening.", (), False),
        (f"Skip the screening for {SUBJECT}.", ("a", "b"), False),
    ],
)
def test_a_rejection_of_what_other_runs_taught_stays_when_one_that_repeats_it_is_erased(
    words: str, witnesses: tuple[str, ...], *, stays: bool
) -> None:
    repeated = version(entry("x", words, evidence=("a",), evidence_count=1))
    rejected = (Rejected(entry_id="w", said=wording_digest(words), evidence=witnesses),)
    rejecting = version(number=2, rejected=rejected)
    kept = after(lessons(repeated, rejecting, erased=("a",)), rejecting)
    assert kept.rejected == (rejected if stays else ())


def test_an_update_keeps_no_digest_of_an_erased_lesson() -> None:
    """Somebody who guesses the text could confirm it."""
    named, other = entry("x", f"Write to {SUBJECT}"), entry("y", "Ask twice")
    claims = [
        Known(entry_id=each.id, evidence=("b",), said=said_digest(each.content)) for each in (named, other)
    ]
    made = update_of(version(number=1), [], [], known=claims)
    kept = left(lessons(version(named, other)), topics.UPDATES, made)
    assert kept is not None
    assert [claim.said for claim in topics.UPDATES.read(kept).result.known] == ["", claims[1].said]


@each_row(("other", "goes"), [("a", True), ("b", False)])
def test_a_consolidation_of_erased_lessons_keeps_none_of_their_words(other: str, *, goes: bool) -> None:
    united = "Ask for the receipt, and twice"
    first = version(
        entry("x", "Ask for the receipt", evidence=("a",), evidence_count=1),
        entry("y", "Ask twice", evidence=(other,), evidence_count=1),
    )
    evidence = tuple(dict.fromkeys(("a", other)))
    second = version(entry("x", united, evidence=evidence, evidence_count=len(evidence)), number=2)
    made = update_of(first, [op(MERGE, united, "x", "y")], [], "consolidate")
    kept = left(lessons(first, second, erased=("a",)), topics.UPDATES, made)
    assert kept is not None
    (operation,) = topics.UPDATES.read(kept).result.operations
    assert operation.content == (Marker(b"secret")(united) if goes else united)


def test_what_quotes_an_erased_lesson_is_erased_with_it() -> None:
    words = f"{'Ask twice, ' * 12}and write to {SUBJECT}."
    named = version(entry("x", words))
    later = version(
        number=2,
        retired=(
            Retired(entry_id="x", content=words[:80] + words[80:]),
            Retired(entry_id="y", content="stays"),
        ),
        changes=(
            Change(kind="evict", entry_id="x", detail=words[:100]),
            Change(kind="superseded", entry_id="y", detail=f"ADD: {words[:120]}"),
            Change(kind="update", entry_id="y", detail="stays"),
        ),
    )
    made = after(lessons(named, later), later)
    assert [change.detail for change in made.changes] == ["erased", "erased", "stays"]
    assert [retired.content for retired in made.retired] == ["stays"]


def test_of_a_whole_prompt_only_the_name_goes() -> None:
    holds: Holds = "components"
    prompt = version(
        entry("x", f"Write to {SUBJECT.upper()}; be kind.", evidence=("a",), evidence_count=1), holds=holds
    )
    assert [each.content for each in after(lessons(prompt, erased=("a",)), prompt).entries] == [
        "Write to erased; be kind."
    ]


@each_row(
    "spelt",
    [
        f"{SUBJECT[:3]}\u00ad{SUBJECT[3:]}",
        f"{SUBJECT[:2]}\u200b{SUBJECT[2:].upper()}",
        SUBJECT.replace("@", "-"),
    ],
)
def test_of_a_whole_prompt_the_name_goes_however_it_is_spelt_and_every_other_word_stays(spelt: str) -> None:
    holds: Holds = "components"
    text = f"Write  to {spelt};\n\tbe ｋｉｎｄ, {spelt}!"
    prompt = version(entry("x", text, evidence=("a",), evidence_count=1), holds=holds)
    (left,) = after(lessons(prompt, erased=("a",)), prompt).entries
    assert left.content == "Write  to erased;\n\tbe ｋｉｎｄ, erased!"


def test_of_a_whole_prompt_the_line_goes_that_has_the_name_in_an_escape() -> None:
    holds: Holds = "components"
    line = "Write to jane&#64;example.com."
    prompt = version(entry("x", f"Be kind.\n{line}\nBe brief."), holds=holds)
    (left,) = after(lessons(prompt), prompt).entries
    assert left.content == f"Be kind.\n{Marker(b'secret')(line)}\nBe brief."


def test_bookkeeping_that_names_the_subject_is_marked_and_the_rest_stays() -> None:
    rules = (Revocation(rule=f"text:{SUBJECT}"), Revocation(rule="source:shop"))
    told = version(entry("x", sources=(SUBJECT, "shop")), revocations=rules, issued_by=f"user:{SUBJECT}")
    made = after(lessons(told), told)
    mark = Marker(b"secret")
    assert [rule.rule for rule in made.revocations] == [mark(f"text:{SUBJECT}"), "source:shop"]
    assert made.entries[0].sources == (mark(SUBJECT), "shop")
    assert made.issued_by == mark(f"user:{SUBJECT}")


def test_what_was_to_be_asked_again_is_not_if_it_is_erased() -> None:
    waiting = version(again=(Asked(offset=3, manifest_offset=0), Asked(offset=4, manifest_offset=0)))
    made = lessons(waiting, erased=("a",))
    made.reflections.add((NAME, 3))
    assert [asked.offset for asked in after(made, waiting).again] == [4]


def test_a_version_that_nothing_concerns_stays_byte_for_byte() -> None:
    other = version(entry("x", evidence=("b",), evidence_count=1))
    record = topics.HISTORY.record(other)
    kept = left(lessons(other, erased=("a",)), topics.HISTORY, other)
    assert kept is not None
    assert kept.value == record.value


def test_a_dead_letter_of_an_erased_run_goes_with_what_was_decided_about_it() -> None:
    letter = DeadLetter(
        origin_topic="reflections",
        origin_partition=0,
        origin_offset=5,
        value=b"\x00 " + SUBJECT.encode(),
        service="shuffle",
        reason="undecodable",
    )
    decided = Resolution(
        letter=LetterId(partition=0, offset=0),
        decision="dropped",
        origin_topic="reflections",
        origin_partition=0,
        origin_offset=5,
    )
    rewriter = Rewriter(lessons(), Marker(b"secret"))
    records = [
        Record(topic="dead-letters", partition=0, offset=n, timestamp_ms=0, key=out.key, value=out.value)
        for n, out in enumerate((topics.DEAD_LETTERS.record(letter), topics.RESOLUTIONS.record(decided)))
    ]
    assert [rewriter.record(topics.DEAD_LETTERS, record) for record in records] == [None, None]
    said = letter.model_copy(update={"value": b"x", "reason": f"no such user {SUBJECT}"})
    kept = left(lessons(), topics.DEAD_LETTERS, said)
    assert kept is not None
    assert SUBJECT not in topics.DEAD_LETTERS.read(kept).reason


def test_a_batch_that_nobody_could_read_goes_and_its_letter_whoever_is_forgotten() -> None:
    raw = gzip.compress(SUBJECT.encode())
    batch = Record(
        topic="reflections",
        partition=0,
        offset=5,
        timestamp_ms=0,
        key=None,
        value=raw,
        headers=((UNREAD_HEADER, b"gzip inflates it beyond 8388608 bytes"),),
    )
    assert Rewriter(lessons(), Marker(b"secret")).record(topics.REFLECTIONS, batch) is None
    plain = replace(batch, headers=())
    assert Rewriter(lessons(), Marker(b"secret")).record(topics.REFLECTIONS, plain) == plain
    written = dead_letter(batch, service="shuffle", reason="", clock=ManualClock())
    assert topics.DEAD_LETTERS.read(record_of(topics.DEAD_LETTERS, written)).unread
    letter = DeadLetter(
        origin_topic="reflections",
        origin_partition=0,
        origin_offset=5,
        value=raw,
        unread=True,
        service="shuffle",
        reason="91 bytes of batch cannot be read: gzip inflates it beyond 8388608 bytes",
    )
    assert left(lessons(), topics.DEAD_LETTERS, letter) is None
    assert left(lessons(), topics.DEAD_LETTERS, letter.model_copy(update={"unread": False})) is not None


def test_the_name_of_a_branch_cannot_be_forgotten() -> None:
    made = Lessons(Selector(subjects=Subjects(("jane",))), Runs())
    with pytest.raises(ErasureError, match="the name of a branch"):
        made.add(version(name=f"{NAME}@jane"))


def test_a_subject_that_is_a_word_of_the_format_is_refused() -> None:
    made = Lessons(Selector(subjects=Subjects(("batch",))), Runs())
    with pytest.raises(ErasureError, match="say more of the subject"):
        left(made, topics.HISTORY, version(origin="batch"))


def test_a_subject_that_is_a_setting_is_refused_and_no_setting_is_lost() -> None:
    made = Lessons(Selector(subjects=Subjects(("gepa",))), Runs())
    with pytest.raises(ErasureError, match="say more of the subject"):
        left(made, topics.HISTORY, version(method="gepa"))


def test_a_hash_that_happens_to_spell_the_subject_stays_as_it_is() -> None:
    spelt = f"ada{'0' * 61}"
    plan = Plan(
        batch_id="b-ada0", playbook=NAME, sequence=1, sha256=spelt, widths=(1,), base_version=0, reflections=1
    )
    told = version(batch=AppliedBatch(plan=plan), changes=(Change(kind="add", detail="Ada said so"),))
    made = Lessons(Selector(subjects=Subjects(("Ada",))), Runs())
    kept = after(made, told)
    assert kept.batch == told.batch
    assert [change.detail for change in kept.changes] == ["erased"]


def test_a_dead_letter_goes_whatever_kind_of_message_of_an_erased_run_it_holds() -> None:
    run = topics.OUTCOMES.record(Outcome(run_id="t-1", playbook=NAME, success=True))
    letter = DeadLetter(
        origin_topic="outcomes",
        origin_partition=0,
        origin_offset=5,
        value=run.value,
        service="control",
        reason="odd",
    )
    made = lessons(erased=("t-1",))
    assert left(made, topics.DEAD_LETTERS, letter) is None
    assert left(lessons(erased=("t-2",)), topics.DEAD_LETTERS, letter) is not None


def test_a_canary_keeps_no_hash_of_the_subject_and_all_others() -> None:
    terms = CanaryTerms(candidate=2, control=1, share=0.5, salt="s", margin=0.1, alpha=0.05, deadline_ms=1)
    by_name, other = (place_of(NAME, terms, name) for name in (SUBJECT, "agent-1"))
    by_outcome = place_of(NAME, terms, f"{SUBJECT}/laptop")
    outcome = topics.OUTCOMES.record(
        Outcome(
            run_id="o",
            playbook=NAME,
            caller=f"{SUBJECT}/laptop",
            shown=Shown(version=2, canary=by_outcome),
        )
    )
    statistics = CanaryStatistics(
        playbook=NAME,
        terms=terms,
        counted=tuple(sorted(map(caller_at, (by_name, other)))),
        waiting=((caller_at(by_outcome), 2),),
    )
    made = lessons()
    made.runs.read(record_of(topics.OUTCOMES, outcome), made.selector, Identities())

    record = left(made, topics.CANARY_STATISTICS, statistics)
    assert record is not None
    after = topics.CANARY_STATISTICS.read(record)
    assert (after.counted, after.waiting) == ((caller_at(other),), ())
    honest = Lessons(Selector(subjects=Subjects(("nobody@example.com",))), Runs())
    assert left(honest, topics.CANARY_STATISTICS, statistics) == record_of(
        topics.CANARY_STATISTICS, topics.CANARY_STATISTICS.record(statistics)
    )
