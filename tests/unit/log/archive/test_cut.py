"""What a cut holds, and what it leaves out because that names something beyond it."""

from typing import Any

from combee.adapters.ports import Record
from combee.core.log.archive.cut import IN_FILE, ORDER, Cut
from combee_schemas import topics
from combee_schemas.base import Message
from combee_schemas.batch import Batch, Member
from combee_schemas.command import Command
from combee_schemas.dead_letter import Attempt, DeadLetter, LetterId, Resolution, attempt_headers
from combee_schemas.gate import Decision
from combee_schemas.plan import Plan
from combee_schemas.playbook import Label, Playbook
from combee_schemas.scan import Group, NodeResult, Update
from combee_schemas.topics import TOPICS, AnyTopic
from support.ledger import NAME
from support.shown import ROOT


def test_every_topic_has_its_place_in_both_orders() -> None:
    names = sorted(topic.name for topic in TOPICS)
    assert sorted(topic.name for topic in ORDER) == sorted(topic.name for topic in IN_FILE) == names


def test_the_page_on_the_file_names_the_topics_in_their_order() -> None:
    page = " ".join((ROOT / "docs" / "reference" / "archive.md").read_text(encoding="utf-8").split())
    listed = page.partition("Topics come in this order: ")[2].partition(". A reader")[0]
    levels = [topic.name for topic in topics.SCAN]
    names = listed.replace(f"{levels[0]} to {levels[-1]}", ", ".join(levels)).split(", ")
    assert names == [topic.name for topic in IN_FILE]


# ---- what names something beyond the cut


ENDS = {topic.name: (10,) for topic in TOPICS}


def cut(*, version: int = 2, sequence: int = 1, **fields: Any) -> Cut:
    """Return a cut in which the playbook has one version, at offset 9 of the history."""
    made = Cut(ends=ENDS, **fields)
    newest = Playbook(name=NAME, version=version, batch_sequence=sequence, origin="batch")
    assert made.holds(topics.HISTORY, at(topics.HISTORY, newest, 9))
    return made


def at(topic: AnyTopic, message: Message, offset: int, **fields: Any) -> Record:
    written = topic.record(message)
    return Record(
        **{
            "topic": topic.name,
            "partition": 0,
            "offset": offset,
            "timestamp_ms": 0,
            "key": written.key,
            "value": written.value,
            **fields,
        }
    )


def plan(sequence: int = 2, base: int = 2) -> Plan:
    return Plan(
        batch_id=f"b-{sequence}",
        playbook=NAME,
        sequence=sequence,
        widths=(1,),
        base_version=base,
        reflections=1,
    )


def manifest(sequence: int = 2, base: int = 2) -> Batch:
    members = (Member(offset=3, reflection_id="r-3"),)
    return Batch(plan=plan(sequence, base), seed=1, members=members, copies=1)


def group(manifest_offset: int, sequence: int = 2) -> Group:
    return Group(plan=plan(sequence), manifest_offset=manifest_offset, node_id="n", index=0, members=())


def update(manifest_offset: int) -> Update:
    return Update(plan=plan(), manifest_offset=manifest_offset, node_id="n", result=NodeResult(status="ok"))


def letter(topic: str, offset: int, **fields: Any) -> DeadLetter:
    about = {"origin_topic": topic, "origin_partition": 0, "origin_offset": offset}
    return DeadLetter.model_validate(about | {"service": "scan", "reason": "", "playbook": NAME} | fields)


def test_a_snapshot_is_of_the_newest_version_in_the_cut() -> None:
    made = cut()
    held = [
        made.holds(topics.PLAYBOOKS, at(topics.PLAYBOOKS, Playbook(name=NAME, version=version), 0))
        for version in (1, 2, 3)
    ]
    assert held == [False, True, False]


def test_where_history_was_lost_a_snapshot_stands_for_itself() -> None:
    made = Cut(ends=ENDS)
    snapshots = [
        Playbook(name=NAME, version=5, history_offset=8),
        Playbook(name=NAME, version=6, history_offset=10),
    ]
    assert [made.holds(topics.PLAYBOOKS, at(topics.PLAYBOOKS, one, 0)) for one in snapshots] == [True, False]
    assert made.newest[NAME].version == 5


def test_a_manifest_on_a_version_beyond_is_left_out_with_all_after_it_and_what_names_them() -> None:
    made = cut()
    held = [
        made.holds(topics.BATCHES, at(topics.BATCHES, manifest(sequence, base), offset))
        for sequence, base, offset in ((2, 2, 4), (3, 3, 5), (4, 2, 6))
    ]
    assert held == [True, False, False]
    assert [made.holds(topics.GROUPS, at(topics.GROUPS, group(place), 0)) for place in (4, 5, 6)] == [
        True,
        False,
        False,
    ]
    assert [made.holds(topics.UPDATES, at(topics.UPDATES, update(place), 0)) for place in (4, 5)] == [
        True,
        False,
    ]
    wrapped = [
        letter(topics.UPDATES.name, 1, value=topics.UPDATES.record(update(place)).value) for place in (4, 5)
    ]
    assert [made.holds(topics.DEAD_LETTERS, at(topics.DEAD_LETTERS, one, 0)) for one in wrapped] == [
        True,
        False,
    ]


def test_a_group_without_its_manifest_is_left_out() -> None:
    made = cut()
    assert [made.holds(topics.GROUPS, at(topics.GROUPS, group(place), 0)) for place in (9, 10)] == [
        True,
        False,
    ]


def test_a_dead_letter_goes_with_the_version_that_had_to_do_without() -> None:
    made = cut(sequence=1)
    assert made.holds(topics.BATCHES, at(topics.BATCHES, manifest(2), 4))
    held = [
        made.holds(topics.DEAD_LETTERS, at(topics.DEAD_LETTERS, letter("reflections", offset), 0))
        for offset in (3, 2)
    ]
    assert held == [False, True], "the member of the batch under way has no dead letter yet"


def test_a_dead_letter_of_a_record_beyond_is_left_out_and_what_was_sent_again_because_of_one() -> None:
    made = cut()
    letters = [letter("scan.1", offset) for offset in (9, 10)]
    assert [made.holds(topics.DEAD_LETTERS, at(topics.DEAD_LETTERS, one, 0)) for one in letters] == [
        True,
        False,
    ]
    for topic in (topics.REFLECTIONS, topics.TRACES, topics.UPDATES):
        again = [
            Record(
                topic=topic.name,
                partition=0,
                offset=0,
                timestamp_ms=0,
                key=b"k",
                value=b"v",
                headers=attempt_headers(Attempt(number=1, letter=LetterId(partition=0, offset=offset))),
            )
            for offset in (9, 10)
        ]
        assert [made.holds(topic, record) for record in again] == [True, False]


def test_a_decision_whose_record_is_beyond_is_left_out() -> None:
    made = cut()
    about = {"letter": {"partition": 0, "offset": 1}, "origin_topic": "scan.1", "origin_partition": 0}
    held = [
        made.holds(
            topics.DEAD_LETTERS,
            at(
                topics.RESOLUTIONS,
                Resolution.model_validate(
                    about
                    | {
                        "origin_offset": 1,
                        "decision": "retried",
                        "retry_partition": 0,
                        "retry_offset": offset,
                    }
                ),
                0,
            ),
        )
        for offset in (9, 10)
    ]
    assert held == [True, False]


def test_a_command_about_a_version_beyond_is_left_out_and_so_is_the_label_of_what_is_deleted() -> None:
    made = cut(version=2)
    commands = [
        Command(command_id="c", playbook=NAME, kind=kind, **{field: version})
        for kind, field in (("rollback", "version"), ("edit", "base_version"))
        for version in (2, 3)
    ]
    held = [made.holds(topics.COMMANDS, at(topics.COMMANDS, command, 0)) for command in commands]
    assert held == [True, False, True, False]

    label = at(topics.LABELS, Label(playbook=NAME, label="prod", version=1), 0)
    assert made.holds(topics.LABELS, label)
    made.holds(topics.HISTORY, at(topics.HISTORY, Playbook(name=NAME, version=3, origin="delete"), 9))
    assert not made.holds(topics.LABELS, label)


# ---- a decision and its label


def decision(version: int, decided_at_ms: int) -> Decision:
    return Decision(playbook=NAME, decided="moved", version=version, decided_at_ms=decided_at_ms)


def test_a_decision_is_in_the_cut_where_its_label_is() -> None:
    made, label = cut(), Label(playbook=NAME, label="production", version=1, moved_at_ms=5)
    assert made.holds(topics.LABELS, at(topics.LABELS, label, 0))
    assert made.holds(topics.DECISIONS, at(topics.DECISIONS, decision(1, 5), 0))
    assert not made.holds(topics.DECISIONS, at(topics.DECISIONS, decision(2, 6), 1)), "its label is beyond"
    assert not made.holds(topics.DECISIONS, at(topics.DECISIONS, decision(3, 5), 2)), "its version is beyond"
