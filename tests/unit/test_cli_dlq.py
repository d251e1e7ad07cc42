"""Dead letters as the command line shows them: whole, and without secrets."""

from typing import Any

import pytest

from combee_schemas import topics
from combee_schemas.codec import encode
from combee_schemas.dead_letter import DeadLetter
from support.deployment import Deployment
from support.ledger import outgoing, reflection
from support.reading import learned_from, put, run, run_json

KEY = "sk-proj-abcdefgh12345678"
pytestmark = pytest.mark.usefixtures("quick_polls")


@pytest.fixture
def learned(quick_polls: None, monkeypatch: pytest.MonkeyPatch) -> Deployment:  # noqa: ARG001 - order
    return learned_from(monkeypatch)


def bury(deployment: Deployment, value: bytes | None, reason: str = "not ours", **fields: Any) -> None:
    letter = DeadLetter(
        **{
            "origin_topic": "reflections",
            "origin_partition": 1,
            "origin_offset": 7,
            "value": value,
            "size": len(value or b""),
            "service": "shuffle",
            "reason": reason,
            **fields,
        }
    )
    put(deployment, topics.DEAD_LETTERS, letter.origin_topic, encode(letter))


def test_dead_letters_are_listed_newest_first_within_the_limit(learned: Deployment) -> None:
    for n in range(5):
        bury(learned, b"x", f"reason {n}")
    found = run_json("dlq", "list", "--limit", "2")
    assert found["total"] == 5
    assert [row["reason"] for row in found["dead_letters"]] == ["reason 4", "reason 3"]
    assert "2 of 5" in run("dlq", "list", "--limit", "2").stdout


def test_a_dead_letter_is_shown_with_its_body(learned: Deployment) -> None:
    bury(learned, outgoing(reflection(3)).value, record_id="r-3")
    (row,) = run_json("dlq", "list")["dead_letters"]
    shown = run_json("dlq", "show", row["id"])
    assert shown["origin"] == {"topic": "reflections", "partition": 1, "offset": 7}
    assert shown["body"]["key_insight"] == "lesson 3"
    assert shown["head_hex"] is None
    assert "lesson 3" in run("dlq", "show", row["id"]).stdout


def test_bytes_that_say_nothing_are_shown_in_hex(learned: Deployment) -> None:
    bury(learned, bytes(range(250)) * 4)
    shown = run_json("dlq", "show", "0-0")
    assert shown["body"] is None
    assert shown["head_hex"].startswith("00 01 02 03")
    assert len(shown["head_hex"].split()) == 256


def test_secrets_in_dead_letters_are_not_shown(learned: Deployment) -> None:
    leaky = reflection(3, key_insight=f"call it with Bearer {KEY} or api_key={KEY}")
    bury(learned, outgoing(leaky).value, f"401 for {KEY}", record_id=KEY, key=KEY.encode())
    bury(learned, b"\x00" + f"Authorization: Bearer {KEY}".encode())
    for arguments in (("list",), ("show", "0-0"), ("show", "0-1")):
        for result in (run("dlq", *arguments), run("dlq", *arguments, "--json")):
            assert result.exit_code == 0
            assert "abcdefgh" not in result.output
            assert b"abcdefgh".hex(" ") not in result.output
    assert "***" in run("dlq", "show", "0-0").stdout


def test_a_dead_letter_that_is_none_is_shown_all_the_same(learned: Deployment) -> None:
    put(learned, topics.DEAD_LETTERS, "x", b"\xc1garbage")
    put(learned, topics.DEAD_LETTERS, "x", None)
    assert run_json("dlq", "list")["total"] == 2
    assert run_json("dlq", "show", "0-0")["head_hex"].startswith("c1")
    assert run_json("dlq", "show", "0-1")["head_hex"] == ""


def test_truncated_letters_are_not_taken_for_whole_ones(learned: Deployment) -> None:
    bury(learned, outgoing(reflection(3)).value, truncated=True)
    assert run_json("dlq", "show", "0-0")["body"] is None


@pytest.mark.parametrize("identity", ["0-99", "7-0"])
def test_a_dead_letter_that_is_not_there_exits_1(learned: Deployment, identity: str) -> None:  # noqa: ARG001
    assert "there is no dead letter" in run("dlq", "show", identity).stderr
