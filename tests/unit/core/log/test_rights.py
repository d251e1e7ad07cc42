import json
from typing import Any

import pytest

from combee.core.log import layout, rights
from combee_schemas.topics import TOPICS
from support.granted import expected, read_table
from support.rows import each_row

ROLES = [role for role in rights.ROLES if role != "operators"]


def names(role: str, operation: str) -> set[str]:
    return {right.name for right in rights.rights(role, "p") if right.operation == operation}


@each_row("role", ROLES)
def test_a_role_reads_and_writes_what_the_map_says(role: str) -> None:
    topics = {right.name for right in rights.rights(role, "p") if right.resource == "topic"} - {"p."}
    assert topics == {f"p.{topic.name}" for topic in TOPICS if role in (*topic.read_by, *topic.written_by)}
    assert names(role, "All") == set()


@each_row("role", ROLES)
def test_nothing_but_descriptions_is_granted_by_prefix(role: str) -> None:
    wide = {
        right.operation for right in rights.rights(role, "p") if right.prefixed and right.resource == "topic"
    }
    assert wide <= {"Describe", "DescribeConfigs"}


def test_who_writes_playbooks_updates_and_commands() -> None:
    writers = {
        topic: {role for role in ROLES if f"p.{topic}" in names(role, "Write")}
        for topic in ("playbooks", "updates", "commands")
    }
    assert writers == {"playbooks": {"publish"}, "updates": {"scan", "shuffle"}, "commands": {"gateway"}}


def strimzi_users(rows: rights.Granted) -> list[dict[str, Any]]:
    return [json.loads(text) for text in rights.as_strimzi(rows).split("---\n")[1:]]


def test_each_format_has_each_right_under_its_principal() -> None:
    rows = rights.granted({"agents": "User:support"}, "p")
    lines = rights.as_kafka_acls(rows).splitlines()
    users = strimzi_users(rows)
    assert len(lines) == len(json.loads(rights.as_json(rows))) == len(rows)
    assert sum(len(user["spec"]["authorization"]["acls"]) for user in users) == len(rows)
    assert {user["metadata"]["name"] for user in users} >= {"support", "combee-scan"}
    assert (
        "kafka-acls.sh $KAFKA --add --allow-principal 'User:combee-shuffle' --operation Write"
        " --transactional-id p.shuffle- --resource-pattern-type prefixed"
    ) in lines
    assert (
        "kafka-acls.sh $KAFKA --add --allow-principal 'User:support' --operation Write --topic p.traces"
        in lines
    )


def test_for_strimzi_a_subject_of_a_certificate_is_a_user_with_one() -> None:
    users = strimzi_users(rights.granted({"agents": "User:CN=support", "operators": "User:people"}, "p"))
    shown = {user["metadata"]["name"]: user["spec"]["authentication"]["type"] for user in users}
    assert shown["support"] == "tls"
    assert {kind for name, kind in shown.items() if name != "support"} == {"scram-sha-512"}
    assert {user["apiVersion"] for user in users} == {"kafka.strimzi.io/v1"}


@each_row(
    "principal", ["User:CN=support,OU=agents", "User:Support", "User:*", "User:CN=", f"User:CN={'x' * 63}.yz"]
)
def test_a_principal_that_strimzi_cannot_have_is_refused(principal: str) -> None:
    with pytest.raises(ValueError, match="Strimzi has no user"):
        rights.as_strimzi(rights.granted({"agents": principal}, "p"))


def test_prefixes_that_lie_within_one_another_are_found() -> None:
    names = {"a.reflections", "a.b.reflections", "ab.reflections", "c.reflections", "a.reflections.old"}
    assert layout.nested("a", names) == ["a.b"]
    assert layout.nested("a.b", names) == ["a"]
    assert layout.nested("a.b.c", names) == ["a", "a.b"]
    assert layout.nested("c", names) == []


def test_the_table_of_what_was_tried_is_of_today_s_map() -> None:
    """A run on a secured Kafka wrote it (tests/kafka/test_rights.py)."""
    assert read_table() == expected()
