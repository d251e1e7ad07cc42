from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from combee.adapters.ports import Outgoing, Record
from combee.core.log.layout import Existing, Wanted, problems, wanted
from combee_schemas.base import playbook_of
from combee_schemas.codec import CodecError, encode
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Group, Partial
from combee_schemas.topics import (
    CANARY_STATISTICS,
    FORMAT_MARK,
    GROUPS,
    HELD_BACK,
    HISTORY,
    MAX_LEVELS,
    PARTIALS,
    PLAYBOOKS,
    RESOLUTIONS,
    SCAN,
    TOPICS,
    TRACES,
    AnyTopic,
    key_of,
    partition_of,
)
from support.examples import examples
from support.rows import each_row

PEOPLE = {"evaluate", "agents", "cli", "gateway", "ledger", "operators", "replay"}
SERVICES = {"reflect", "shuffle", "scan", "publish", "control"}


def every(topic: AnyTopic) -> str:
    return topic.name


def test_no_name_comes_twice() -> None:
    assert len({topic.name for topic in TOPICS}) == len(TOPICS)


@each_row("topic", TOPICS, ids=every)
def test_every_topic_has_writers_and_readers_that_exist(topic: AnyTopic) -> None:
    assert topic.written_by
    assert topic.read_by
    assert {*topic.written_by, *topic.read_by} <= PEOPLE | SERVICES


@each_row("topic", TOPICS, ids=every)
def test_a_branch_and_what_is_deleted_stand_with_their_playbook(topic: AnyTopic) -> None:
    keys = (b"support/refunds", b"support/refunds@short", b"support/refunds#deleted")
    places = {tuple(partition_of(topic.name, key, count) for count in range(1, 60)) for key in keys}
    assert len(places) == (1 if topic.name in BY_PLAYBOOK else 3)


@each_row("name", ["a@b", "support/refunds@small-batches", "a@1.2_3"])
def test_a_branch_learns_from_its_playbook_and_has_no_reflections_of_its_own(name: str) -> None:
    assert Playbook(name=name, version=1).name == name
    assert playbook_of(name) == name.partition("@")[0]
    with pytest.raises(ValidationError):
        Reflection(reflection_id="r", playbook=name, key_insight="x")


def test_every_service_reads_or_writes_something() -> None:
    assert {name for topic in TOPICS for name in (*topic.written_by, *topic.read_by)} >= SERVICES


def test_only_publish_writes_playbooks() -> None:
    assert {
        topic.name: topic.written_by for topic in TOPICS if topic.name in {"playbooks", "history", "labels"}
    } == dict.fromkeys(("playbooks", "history", "labels"), ("publish",))


def test_every_service_may_write_dead_letters() -> None:
    (dead,) = [topic for topic in TOPICS if topic.name == "dead-letters"]
    assert set(dead.written_by) - {"cli", "gateway"} == SERVICES


def test_topics_keyed_by_playbook_are_co_partitioned() -> None:
    assert {topic.name for topic in TOPICS if topic.spread == "playbooks"} == BY_PLAYBOOK
    counts = {one.partitions for one in wanted(5, 7) if one.topic.name in BY_PLAYBOOK}
    assert counts == {5}


def test_scan_levels_count_from_0_and_only_the_lowest_has_groups() -> None:
    assert [topic.name for topic in SCAN] == [f"scan.{level}" for level in range(MAX_LEVELS)]
    assert [topic.message for topic in SCAN] == [Group, *[Partial] * (MAX_LEVELS - 1)]
    assert {one.partitions for one in wanted(5, 7) if one.topic in SCAN} == {7}


def test_what_holds_lineage_is_kept_for_ever() -> None:
    kept = {topic.name for topic in TOPICS if topic.config().get("retention.ms") == "-1"}
    assert kept == {"batches", "updates", "history", "decisions", "erasures"}


def test_compacted_topics_are_small_for_new_subscribers() -> None:
    compacted = [topic for topic in TOPICS if topic.cleanup == "compact"]
    assert {topic.name for topic in compacted} == {
        *("playbooks", "labels", "batch-sizes", "outcome-statistics", "evaluations"),
    }
    for topic in compacted:
        assert topic.config()["segment.bytes"] == str(16 << 20)
        assert "retention.ms" not in topic.config()


# ---- where a message goes

MAP = {
    **{(topic.name, topic.message.type): topic for topic in TOPICS},
    **{("dead-letters", topic.message.type): topic for topic in (RESOLUTIONS, HELD_BACK)},
    ("outcome-statistics", "canary-statistics"): CANARY_STATISTICS,
}
KEYS = {
    ("traces", "trace"): b"t-0001",
    ("reflections", "reflection"): b"support/refunds",
    ("batches", "batch"): b"support/refunds",
    ("scan.0", "group"): b"n-0a0b0c0d0e0f101112131415",
    ("scan.1", "partial"): b"n-2",
    ("scan.2", "partial"): b"n-2",
    ("scan.3", "partial"): b"n-2",
    ("answers", "answer"): b"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    ("updates", "update"): b"support/refunds",
    ("playbooks", "playbook"): b"support/refunds",
    ("history", "playbook"): b"support/refunds",
    ("labels", "label"): b"support/refunds#production",
    ("commands", "command"): b"support/refunds",
    ("batch-sizes", "batch-size"): b"support/refunds",
    ("outcomes", "outcome"): b"support/refunds",
    ("outcome-statistics", "outcome-statistics"): b"support/refunds",
    ("outcome-statistics", "canary-statistics"): b"support/refunds#canary",
    ("verdicts", "verdict"): b"support/refunds",
    ("decisions", "decision"): b"support/refunds",
    ("evaluations", "evaluation"): b"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    ("dead-letters", "dead-letter"): b"reflections",
    ("dead-letters", "resolution"): b"traces",
    ("dead-letters", "held-back"): b"held-back",
    ("erasures", "erasure"): b"5f0c2d9e7a41b863",
}
"""Frozen, as the golden examples are: by topic and type, the key of the example that is called as in ``NAMED``."""
BY_PLAYBOOK = {name for (name, _), key in KEYS.items() if key == b"support/refunds"} - {"batch-sizes"}
"""Sizes of batches are few: all of them are on one partition."""
NAMED = {"command": "rollback", "resolution": "dropped"}
GOLDEN = {(one.kind.type, one.path.stem): one for one in examples()}


def example(kind: str) -> Any:
    return GOLDEN[kind, NAMED.get(kind, "full")].message


def as_read(outgoing: Outgoing) -> Record:
    return Record(
        topic=outgoing.topic, partition=0, offset=7, timestamp_ms=0, key=outgoing.key, value=outgoing.value
    )


def test_every_message_of_every_topic_has_a_frozen_key() -> None:
    beside = {(topic.name, kind.type) for topic in TOPICS for kind in topic.beside}
    assert KEYS.keys() == MAP.keys() == {(topic.name, topic.message.type) for topic in TOPICS} | beside


@each_row(("place", "key"), KEYS.items(), ids=lambda one: "-".join(one) if one in KEYS else "")
def test_a_message_is_written_under_the_key_that_it_always_had(place: tuple[str, str], key: bytes) -> None:
    message = example(place[1])
    assert MAP[place].record(message, partition=3) == Outgoing(
        topic=place[0], key=key, value=encode(message), partition=3
    )


@each_row("topic", MAP.values(), ids=every)
def test_every_golden_example_comes_back_as_it_was_written(topic: AnyTopic) -> None:
    examples = [example for example in GOLDEN.values() if example.kind is topic.message]
    assert examples
    for golden in examples:
        record = as_read(topic.record(golden.message))
        assert topic.read(record) == topic.read_own(record) == golden.message, golden.path
        assert list(topic.under(key_of(record), [record])) == [golden.message], golden.path
        assert topic.read(replace(record, value=golden.raw)) == golden.message, golden.path


@each_row("topic", MAP.values(), ids=every)
def test_what_is_no_message_of_the_topic_is_refused_or_passed_over(topic: AnyTopic) -> None:
    record = as_read(topic.record(example(topic.message.type)))
    for value in (None, b"", b"\xc1", GOLDEN["trace" if topic is not TRACES else "label", "full"].raw):
        spoiled = replace(record, value=value)
        with pytest.raises(CodecError):
            topic.read(spoiled)
        assert topic.read_or_none(spoiled) is None
        assert list(topic.under(key_of(spoiled), [spoiled])) == []


@each_row("topic", MAP.values(), ids=every)
def test_a_message_under_a_foreign_key_is_not_the_keys_own(topic: AnyTopic) -> None:
    record = replace(as_read(topic.record(example(topic.message.type))), key=b"foreign")
    assert topic.read(record) == example(topic.message.type)
    assert list(topic.under("support/refunds", [record])) == []
    with pytest.raises(CodecError, match="under the key 'foreign'"):
        topic.read_own(record)


def test_what_remains_of_a_deleted_playbook_has_a_key_of_its_own_in_the_snapshots_alone() -> None:
    deleted = example("playbook").model_copy(update={"origin": "delete"})
    assert PLAYBOOKS.key_of(deleted) == b"support/refunds#deleted"
    assert HISTORY.key_of(deleted) == b"support/refunds"
    gone = PLAYBOOKS.tombstone("support/refunds", partition=2)
    assert gone == Outgoing(topic="playbooks", key=b"support/refunds", value=None, partition=2)


def test_a_message_of_the_scan_has_the_partition_that_it_always_had_and_no_other_message_has_one() -> None:
    group, partial = example("group"), example("partial")
    assert [GROUPS.place(group, count) for count in (1, 3, 6)] == [0, 1, 4]
    for topic in PARTIALS:
        assert [topic.place(partial, count) for count in (1, 3, 6, 64)] == [0, 1, 1, 39]
    others = [topic for topic in MAP.values() if topic not in SCAN]
    assert {topic.place(example(topic.message.type), 6) for topic in others} == {None}


# ---- what is on the broker


def found(want: Wanted, **changes: str) -> Existing:
    return Existing(partitions=want.partitions, config={**want.topic.config(), **changes})


WANT = wanted(4, 8)
FINE = {one.topic.name: found(one) for one in WANT} | {FORMAT_MARK: Existing(partitions=1, config={})}


def test_topics_as_wanted_are_no_problem() -> None:
    assert problems(WANT, FINE, "combee") == []


def test_a_missing_topic_says_what_creates_it() -> None:
    have = {name: state for name, state in FINE.items() if name != "updates"}
    assert problems(WANT, have, "p") == ["p.updates is missing: run 'combee topics create'"]


def test_a_prefix_of_another_format_is_one_problem_with_its_remedy() -> None:
    have = {name: state for name, state in FINE.items() if name not in {FORMAT_MARK, "updates"}}
    (problem,) = problems(WANT, have, "p")
    assert f"there is no p.{FORMAT_MARK}): start the release that wrote it, or choose another" in problem
    assert len(problems(WANT, {}, "p")) == len(WANT), "of an empty prefix nothing is known"


def test_other_topics_under_the_prefix_are_not_our_business() -> None:
    assert problems(WANT, {**FINE, "theirs": Existing(partitions=1, config={})}, "combee") == []


@each_row(
    ("name", "remedy"),
    [
        ("reflections", "set COMBEE_PARTITIONS=3"),
        ("scan.0", "set COMBEE_SCAN_PARTITIONS=3"),
        ("traces", "set COMBEE_SCAN_PARTITIONS=3"),
        ("labels", "it must have one: recreate it"),
    ],
)
def test_a_wrong_partition_count_names_the_setting_that_fits(name: str, remedy: str) -> None:
    wrong = Existing(partitions=3, config=FINE[name].config)
    (problem,) = problems(WANT, {**FINE, name: wrong}, "combee")
    assert problem.startswith(f"combee.{name} has 3 partitions instead of ")
    assert remedy in problem


@each_row(
    ("name", "key", "value"),
    [
        ("playbooks", "cleanup.policy", "delete"),
        ("history", "cleanup.policy", "compact"),
        ("history", "retention.ms", "604800000"),
        ("reflections", "retention.ms", "1000"),
        ("reflections", "retention.ms", "soon"),
    ],
)
def test_a_configuration_that_loses_data_says_how_to_alter_it(name: str, key: str, value: str) -> None:
    (want,) = [one for one in WANT if one.topic.name == name]
    (problem,) = problems(WANT, {**FINE, name: found(want, **{key: value})}, "combee")
    assert f"combee.{name} has {key}={value} instead of {want.topic.config()[key]}" in problem
    assert f"--alter --topic combee.{name} --add-config {key}={want.topic.config()[key]}" in problem


@pytest.mark.parametrize("value", ["-1", str(10**15)])
def test_a_longer_retention_than_asked_is_fine(value: str) -> None:
    (want,) = [one for one in WANT if one.topic.name == "reflections"]
    assert problems(WANT, {**FINE, "reflections": found(want, **{"retention.ms": value})}, "combee") == []


def test_what_an_operator_may_tune_is_left_alone() -> None:
    (want,) = [one for one in WANT if one.topic.name == "playbooks"]
    assert problems(WANT, {**FINE, "playbooks": found(want, **{"segment.bytes": "1"})}, "combee") == []
