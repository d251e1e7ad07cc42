"""Dead letters as the command line shows them: whole, and without secrets."""

import asyncio
from typing import Any

import pytest

from combee.adapters.clock import SystemClock
from combee.process.worker.dead_letters import held_back
from combee_schemas import topics
from combee_schemas.codec import encode
from combee_schemas.dead_letter import DeadLetter
from support.deployment import Deployment
from support.ledger import NAME, outgoing, records, reflection
from support.reading import learned_from, put, run, run_json, use_log

KEY = "sk-proj-abcdefgh12345678"
pytestmark = pytest.mark.usefixtures("quick_polls")


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """Return a deployment in which nothing has happened; verbs work on its log."""
    made = Deployment()
    use_log(monkeypatch, made.log)
    return made


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


def test_dead_letters_are_listed_newest_first_within_the_limit(site: Deployment) -> None:
    for n in range(5):
        bury(site, b"x", f"reason {n}")
    found = run_json("dlq", "list", "--limit", "2")
    assert found["total"] == 5
    assert [row["reason"] for row in found["dead_letters"]] == ["reason 4", "reason 3"]
    assert "2 of 5" in run("dlq", "list", "--limit", "2").stdout


@pytest.mark.parametrize("name", ["[/x]", "[link=http://localhost]r-1[/link]", "r-\x1b[2J1"])
def test_the_list_shows_what_a_producer_called_its_record_as_it_is(site: Deployment, name: str) -> None:
    """A name that was read as markup ended the verb, so one record hid all dead letters."""
    bury(site, b"x", f"no {name}", record_id=name)
    done = run("dlq", "list", "--limit", "2")
    assert done.exit_code == 0
    assert name.replace("\x1b", "\N{REPLACEMENT CHARACTER}") in done.stdout


def test_a_dead_letter_is_shown_with_its_body(site: Deployment) -> None:
    bury(site, outgoing(reflection(3)).value, record_id="r-3")
    (row,) = run_json("dlq", "list")["dead_letters"]
    shown = run_json("dlq", "show", row["id"])
    assert shown["origin"] == {"topic": "reflections", "partition": 1, "offset": 7}
    assert shown["body"]["key_insight"] == "lesson 3"
    assert shown["head_hex"] is None
    assert "lesson 3" in run("dlq", "show", row["id"]).stdout


def test_bytes_that_say_nothing_are_shown_in_hex(site: Deployment) -> None:
    bury(site, bytes(range(250)) * 4)
    shown = run_json("dlq", "show", "0-0")
    assert shown["body"] is None
    assert shown["head_hex"].startswith("00 01 02 03")
    assert len(shown["head_hex"].split()) == 256


def test_a_payload_that_is_no_message_is_shown_as_text(site: Deployment) -> None:
    bury(site, '{"playbook": "support/refunds", "key_insight": "Grüße"'.encode())
    shown = run_json("dlq", "show", "0-0")
    assert (shown["body"], shown["text"]) == (None, '{"playbook": "support/refunds", "key_insight": "Grüße"')
    told = run("dlq", "show", "0-0").stdout
    assert 'text: {"playbook": "support/refunds", "key_insight": "Grüße"' in told
    assert "body: null" not in told


def test_secrets_in_dead_letters_are_not_shown(site: Deployment) -> None:
    leaky = reflection(3, key_insight=f"call it with Bearer {KEY} or api_key={KEY}")
    bury(site, outgoing(leaky).value, f"401 for {KEY}", record_id=KEY, key=KEY.encode())
    bury(site, b"\x00" + f"Authorization: Bearer {KEY}".encode())
    for arguments in (("list",), ("show", "0-0"), ("show", "0-1")):
        for result in (run("dlq", *arguments), run("dlq", *arguments, "--json")):
            assert result.exit_code == 0
            assert "abcdefgh" not in result.output
            assert b"abcdefgh".hex(" ") not in result.output
    assert "***" in run("dlq", "show", "0-0").stdout


def test_a_dead_letter_that_is_none_is_shown_all_the_same(site: Deployment) -> None:
    put(site, topics.DEAD_LETTERS, "x", b"\xc1garbage")
    put(site, topics.DEAD_LETTERS, "x", None)
    assert run_json("dlq", "list")["total"] == 2
    assert run_json("dlq", "show", "0-0")["head_hex"].startswith("c1")
    assert run_json("dlq", "show", "0-1")["head_hex"] == ""


def test_truncated_letters_are_not_taken_for_whole_ones(site: Deployment) -> None:
    bury(site, outgoing(reflection(3)).value, truncated=True)
    assert run_json("dlq", "show", "0-0")["body"] is None


@pytest.mark.parametrize(
    ("verb", "identity"), [("show", "0-99"), ("show", "7-0"), ("retry", "0-99"), ("drop", "0-99")]
)
@pytest.mark.usefixtures("site")
def test_a_dead_letter_that_is_not_there_exits_1(verb: str, identity: str) -> None:
    result = run("dlq", verb, identity)
    assert result.exit_code == 1
    assert f"there is no dead letter {identity}" in result.stderr


# ---- retry and drop


def bury_reflection(deployment: Deployment, number: int, **fields: Any) -> None:
    record = outgoing(reflection(number))
    bury(
        deployment,
        record.value,
        **{"record_id": f"r-{number}", "playbook": NAME, "key": record.key, "service": "scan", **fields},
    )


def open_ids() -> list[str]:
    return [row["id"] for row in reversed(run_json("dlq", "list")["dead_letters"])]


def test_retry_sends_records_again_and_closes_their_dead_letters(site: Deployment) -> None:
    bury_reflection(site, 50)
    bury_reflection(site, 51)
    found = run_json("dlq", "retry", "0-0")
    (row,) = found["retried"]
    assert (row["id"], row["record_id"], row["playbook"], row["attempt"]) == ("0-0", "r-50", NAME, 1)
    sent = records(site.log, topics.REFLECTIONS)[-1]
    assert (sent.value, sent.key) == (outgoing(reflection(50)).value, NAME.encode())
    assert row["to"] == {"topic": "reflections", "partition": sent.partition, "offset": sent.offset}
    assert open_ids() == ["0-1"]
    states = {one["id"]: one["state"] for one in run_json("dlq", "list", "--all")["dead_letters"]}
    assert states == {"0-0": "retried", "0-1": "open"}
    assert run_json("dlq", "show", "0-0")["resolution"]["attempt"] == 1


def test_what_is_held_back_is_no_dead_letter_and_shows_in_status(site: Deployment) -> None:
    clock = SystemClock()
    site.clock.step_wall((clock.now_ms() - site.clock.now_ms()) / 1000)
    for playbook, seconds in (("gone", -1), (NAME, 60), ("", 90)):
        asyncio.run(site.log.produce(held_back("reflect", playbook, seconds, clock)))
    assert run_json("dlq", "list", "--all")["total"] == 0
    assert "there is no dead letter" in run("dlq", "drop", "0-1").stderr
    assert [one["playbook"] for one in run_json("status")["held_back"]] == ["", NAME]
    assert f"reflect holds back {NAME} until" in run("status").stdout
    assert "holds back unreadable records until" in run("status").stdout


def test_retry_a_second_time_changes_nothing(site: Deployment) -> None:
    bury_reflection(site, 50)
    assert run("dlq", "retry", "--all").exit_code == 0
    written = len(records(site.log, topics.REFLECTIONS))
    again = run_json("dlq", "retry", "0-0", "0-0")
    assert (again["retried"], [one["id"] for one in again["unchanged"]]) == ([], ["0-0"])
    assert run("dlq", "retry", "--all").stdout == "no open dead letters\n"
    assert len(records(site.log, topics.REFLECTIONS)) == written


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        ((), ["0-0", "0-1", "0-2"]),
        (("--service", "reflect"), ["0-1"]),
        (("--reason", "NOT OURS"), ["0-0", "0-1"]),
        (("--service", "scan", "--reason", "other"), ["0-2"]),
        (("--service", "nobody"), []),
    ],
)
def test_all_means_what_the_filters_leave(site: Deployment, filters: tuple[str, ...], ids: list[str]) -> None:
    bury_reflection(site, 50)
    bury_reflection(site, 51, service="reflect")
    bury_reflection(site, 52, reason="another fault")
    assert [row["id"] for row in reversed(run_json("dlq", "list", *filters)["dead_letters"])] == ids
    assert [row["id"] for row in run_json("dlq", "retry", "--all", *filters)["retried"]] == ids


def test_what_cannot_be_sent_again_is_refused_beside_what_can_and_stays_open(site: Deployment) -> None:
    bury(site, b"x", origin_topic="commands")
    put(site, topics.DEAD_LETTERS, "x", b"\xc1garbage")
    bury_reflection(site, 50)
    found = run_json("dlq", "retry", "--all", code=3)
    assert [row["id"] for row in found["refused"]] == ["0-0", "0-1"]
    assert [row["id"] for row in found["retried"]] == ["0-2"]
    assert "combee dlq drop 0-0" in run("dlq", "retry", "--all").stdout
    assert open_ids() == ["0-0", "0-1"]


def test_records_of_a_batch_that_has_its_version_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    learned = learned_from(monkeypatch)
    update = records(learned.log, topics.UPDATES)[0]
    bury(learned, update.value, origin_topic="updates", service="publish")
    (row,) = run_json("dlq", "retry", "--all", code=3)["refused"]
    assert "has its version already" in row["why"]


def test_drop_closes_dead_letters_for_the_record_and_deletes_nothing(site: Deployment) -> None:
    bury_reflection(site, 50)
    put(site, topics.DEAD_LETTERS, "x", b"\xc1garbage")
    found = run_json("dlq", "drop", "0-0", "0-1", "--note", f"load test, api_key={KEY}")
    assert [row["id"] for row in found["dropped"]] == ["0-0", "0-1"]
    assert "abcdefgh" not in str(found)
    assert open_ids() == []
    shown = run_json("dlq", "show", "0-0")
    assert (shown["state"], shown["body"]["key_insight"]) == ("dropped", "lesson 50")
    assert run_json("dlq", "retry", "0-0")["unchanged"][0]["decision"] == "dropped"
    assert "dropped already" in run("dlq", "drop", "0-0").stdout


def test_a_decision_is_no_dead_letter(site: Deployment) -> None:
    bury_reflection(site, 50)
    run("dlq", "drop", "0-0")
    assert "there is no dead letter" in run("dlq", "show", "0-1").stderr
    assert run_json("dlq", "list", "--all")["total"] == 1


def test_secrets_are_sent_again_as_they_are_and_never_shown(site: Deployment) -> None:
    leaky = outgoing(reflection(3, key_insight=f"api_key={KEY}")).value
    bury(site, leaky, record_id=KEY, playbook=NAME)
    result = run("dlq", "retry", "0-0", "--json")
    assert "abcdefgh" not in result.output
    assert records(site.log, topics.REFLECTIONS)[-1].value == leaky
