import pytest

from combee.core.layout import Found, Wanted, problems, wanted
from combee_schemas.scan import Group, Partial
from combee_schemas.topics import MAX_LEVELS, SCAN, TOPICS, Topic

PEOPLE = {"agents", "cli", "gateway", "ledger", "operators", "replay"}
SERVICES = {"reflect", "shuffle", "scan", "publish", "control"}
READERS_OF_INPUT = SERVICES - {"control"}
"""Control reads versions only: nothing that others send can be poison to it."""
BY_PLAYBOOK = {"reflections", "batches", "updates", "playbooks", "history", "commands"}


def every(topic: Topic) -> str:
    return topic.name


def test_no_name_comes_twice() -> None:
    assert len({topic.name for topic in TOPICS}) == len(TOPICS)


@pytest.mark.parametrize("topic", TOPICS, ids=every)
def test_every_topic_has_writers_and_readers_that_exist(topic: Topic) -> None:
    assert topic.written_by
    assert topic.read_by
    assert {*topic.written_by, *topic.read_by} <= PEOPLE | SERVICES


def test_every_service_reads_or_writes_something() -> None:
    assert {name for topic in TOPICS for name in (*topic.written_by, *topic.read_by)} >= SERVICES


def test_only_publish_writes_playbooks() -> None:
    assert {
        topic.name: topic.written_by for topic in TOPICS if topic.name in {"playbooks", "history", "labels"}
    } == dict.fromkeys(("playbooks", "history", "labels"), ("publish",))


def test_every_service_that_reads_input_may_write_dead_letters() -> None:
    (dead,) = [topic for topic in TOPICS if topic.name == "dead-letters"]
    assert set(dead.written_by) - {"cli"} == READERS_OF_INPUT


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
    assert kept == {"batches", "updates", "history"}


def test_compacted_topics_are_small_for_new_subscribers() -> None:
    compacted = [topic for topic in TOPICS if topic.cleanup == "compact"]
    assert {topic.name for topic in compacted} == {"playbooks", "labels", "batch-sizes"}
    for topic in compacted:
        assert topic.config()["segment.bytes"] == str(16 << 20)
        assert "retention.ms" not in topic.config()


# ---- what is on the broker


def found(want: Wanted, **changes: str) -> Found:
    return Found(partitions=want.partitions, config={**want.topic.config(), **changes})


WANT = wanted(4, 8)
FINE = {one.topic.name: found(one) for one in WANT}


def test_topics_as_wanted_are_no_problem() -> None:
    assert problems(WANT, FINE, "combee") == []


def test_a_missing_topic_says_what_creates_it() -> None:
    have = {name: state for name, state in FINE.items() if name != "updates"}
    assert problems(WANT, have, "p") == ["p.updates is missing: run 'combee topics create'"]


def test_other_topics_under_the_prefix_are_not_our_business() -> None:
    assert problems(WANT, {**FINE, "theirs": Found(partitions=1, config={})}, "combee") == []


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("reflections", "set COMBEE_PARTITIONS=3"),
        ("scan.0", "set COMBEE_SCAN_PARTITIONS=3"),
        ("traces", "set COMBEE_SCAN_PARTITIONS=3"),
        ("labels", "it must have one: recreate it"),
    ],
)
def test_a_wrong_partition_count_names_the_setting_that_fits(name: str, remedy: str) -> None:
    wrong = Found(partitions=3, config=FINE[name].config)
    (problem,) = problems(WANT, {**FINE, name: wrong}, "combee")
    assert problem.startswith(f"combee.{name} has 3 partitions instead of ")
    assert remedy in problem


@pytest.mark.parametrize(
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
