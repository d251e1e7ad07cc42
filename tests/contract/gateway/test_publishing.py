"""What agents send over HTTP: acknowledged, once, bounded, and each item for itself."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from combee.adapters.clock import SystemClock
from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Outgoing, TransientError
from combee.core.playbook.shown import content_digest
from combee.gateway.endpoints import publishing
from combee.gateway.endpoints.publishing import MAX_VALUES, Publishing
from combee.gateway.problems import MAX_ERRORS, MAX_NAMED
from combee_schemas import topics
from combee_schemas.base import Usage
from combee_schemas.reflection import LESSON_FIELDS, Reflection
from combee_schemas.topics import AnyTopic
from combee_schemas.trace import Trace
from support.gateway import Asked, asked, published, version
from support.ledger import read_all
from support.shown import ROOT
from support.waiting import until

LESSON = {"reflection_id": "r1", "playbook": "support/refunds", "key_insight": "check the date"}
JSON = {"content-type": "application/json"}
RUNS = ROOT / "examples" / "runs.jsonl"
TRACE = {"trace_id": "t1", "playbook": "support/refunds", "task": "refund?"}


class Gate(MemoryLog):
    """A log that acknowledges when it is told to, or fails."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.open = asyncio.Event()
        self.waiting = 0
        self.error: Exception | None = None

    async def produce(self, *outgoing: Outgoing) -> Sequence[int]:
        self.waiting += 1
        try:
            await self.open.wait()
        finally:
            self.waiting -= 1
        if self.error:
            raise self.error
        return await super().produce(*outgoing)


async def written(gateway: Asked, topic: AnyTopic) -> list[Any]:
    return [topic.read(record) for record in await read_all(gateway.log, topic)]


async def test_what_is_sent_is_written_as_it_is_and_keyed_as_the_map_says() -> None:
    async with asked() as gateway:
        answers = [
            await gateway.client.post("/v1/reflections", json=LESSON),
            await gateway.client.post("/v1/traces", json=[TRACE, {**TRACE, "trace_id": "t2"}]),
        ]
        assert [one.status_code for one in answers] == [202, 202]
        assert answers[0].json()["items"] == [{"index": 0, "id": "r1", "status": "accepted", "problem": None}]
        (lesson,) = await written(gateway, topics.REFLECTIONS)
        assert isinstance(lesson, Reflection)
        assert (lesson.reflection_id, lesson.key_insight) == ("r1", "check the date")
        assert lesson.created_at_ms > 0
        traces = await written(gateway, topics.TRACES)
        assert {one.trace_id for one in traces if isinstance(one, Trace)} == {"t1", "t2"}
        number = await gateway.log.partition_for(topics.REFLECTIONS.name, b"support/refunds")
        assert (await gateway.log.ends(topics.REFLECTIONS.name))[number] == 1


async def test_what_the_entries_said_is_added_that_a_client_names_as_shown() -> None:
    first, newest = version("support/refunds", 1, "ask"), version("support/refunds", 2, "ask", "look")
    shown = {"version": 2, "entry_ids": ["misc-00002", "unknown"]}
    async with asked() as gateway:
        await gateway.knows(first, newest)
        for _ in range(2):
            await gateway.client.post("/v1/reflections", json={**LESSON, "shown": shown})
        await gateway.client.post("/v1/traces", json={**TRACE, "shown": shown})
        own = {**shown, "digests": ["mine", "own"]}
        await gateway.client.post("/v1/traces", json={**TRACE, "trace_id": "t2", "shown": own})
        nowhere = {**shown, "line": "0" * 300}
        await gateway.client.post("/v1/traces", json={**TRACE, "trace_id": "t3", "shown": nowhere})
        (lesson,) = await written(gateway, topics.REFLECTIONS)
        traces = await written(gateway, topics.TRACES)
    expected = (content_digest(newest.entries[1]), "")
    assert lesson.shown.digests == expected
    assert {trace.trace_id: trace.shown.digests for trace in traces} == {
        "t1": expected,
        "t2": ("mine", "own"),
        "t3": (),
    }


async def test_a_file_of_json_lines_is_refused_with_the_remedy() -> None:
    async with asked() as gateway:
        refused = await gateway.client.post("/v1/traces", content=RUNS.read_bytes(), headers=JSON)
        nonsense = await gateway.client.post("/v1/traces", content="{}x", headers=JSON)
    assert (refused.status_code, nonsense.status_code) == (422, 422)
    assert "use 'combee publish FILE'" in refused.json()["detail"]
    assert nonsense.json()["detail"].startswith("not JSON: ")


async def test_of_the_examples_runs_the_traces_are_taken_and_the_sample_and_the_reflection_refused() -> None:
    runs = [
        {**json.loads(line), "playbook": "support/refunds"} for line in RUNS.read_text("utf-8").splitlines()
    ]
    async with asked() as gateway:
        answer = await gateway.client.post("/v1/traces", json=runs)
        lesson = await gateway.client.post("/v1/reflections", json=runs[-1])
    assert (answer.status_code, lesson.status_code) == (207, 202)
    refused = [item["index"] for item in answer.json()["items"] if item["status"] == "refused"]
    assert refused == [at for at, run in enumerate(runs) if "task" not in run] == [14, 15]


async def test_nothing_is_accepted_before_the_log_has_acknowledged() -> None:
    log = Gate()
    async with asked(log) as gateway:
        sending = asyncio.create_task(gateway.client.post("/v1/reflections", json=LESSON))
        await until(lambda: log.waiting == 1)
        assert not sending.done()
        log.open.set()
        assert (await sending).status_code == 202


@pytest.mark.parametrize("error", [TransientError("away"), TimeoutError()])
async def test_what_the_log_does_not_take_is_to_be_sent_again(error: Exception) -> None:
    log = Gate()
    log.error = error
    log.open.set()
    async with asked(log) as gateway:
        answer = await gateway.client.post("/v1/reflections", json=LESSON)
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        log.error = None
        again = await gateway.client.post("/v1/reflections", json=LESSON)
        assert again.json()["accepted"] == 1
        assert len(await written(gateway, topics.REFLECTIONS)) == 1


async def test_a_log_that_says_nothing_is_not_waited_for_for_ever() -> None:
    async with asked(Gate(), ack_timeout_s=0.05) as gateway:
        assert (await gateway.client.post("/v1/reflections", json=LESSON)).status_code == 503


@pytest.mark.parametrize(
    "line", ["0" * 300, "a b", "support/refunds@", "support/refunds@a@b", "support/other"]
)
async def test_what_an_agent_calls_the_line_that_it_read_is_any_text(line: str) -> None:
    shown = {"version": 1, "entry_ids": ["misc-00001"], "line": line}
    async with asked() as gateway:
        await gateway.knows(version("support/other", 1))
        answer = await gateway.client.post("/v1/reflections", json={**LESSON, "shown": shown})
        assert answer.status_code == 202
        (lesson,) = await written(gateway, topics.REFLECTIONS)
    assert lesson.shown is not None
    assert (lesson.shown.line, lesson.shown.digests) == (line, ()), "what others have is looked up for nobody"


@pytest.mark.parametrize(("path", "given"), [("reflections", LESSON), ("traces", TRACE)])
async def test_what_is_sent_for_a_branch_is_refused_with_the_remedy(path: str, given: dict[str, Any]) -> None:
    async with asked() as gateway:
        answer = await gateway.client.post(f"/v1/{path}", json={**given, "playbook": "support/refunds@exp"})
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith(
            "support/refunds@exp is a branch: publish for support/refunds, from whose reflections it learns"
        )
        assert await gateway.log.ends(f"{path}") == dict.fromkeys(await gateway.log.ends(path), 0)


async def test_a_repeat_under_the_same_id_is_written_once() -> None:
    async with asked() as gateway:
        first = await gateway.client.post("/v1/reflections", json=LESSON)
        again = await gateway.client.post("/v1/reflections", json=[LESSON, LESSON])
        other = await gateway.client.post("/v1/reflections", json={**LESSON, "playbook": "other"})

        assert (first.json()["accepted"], again.json()["repeated"], other.json()["accepted"]) == (1, 2, 1)
        assert again.status_code == 202
        assert len(await written(gateway, topics.REFLECTIONS)) == 2


async def test_the_same_id_in_two_playbooks_is_two_things_in_one_request_too() -> None:
    both = [TRACE, {**TRACE, "playbook": "other"}]
    async with asked() as gateway:
        await gateway.client.post("/v1/traces", json=TRACE)
        answer = await gateway.client.post("/v1/traces", json=both)

        assert [one["status"] for one in answer.json()["items"]] == ["repeated", "accepted"]
        assert {one.playbook for one in await written(gateway, topics.TRACES)} == {"support/refunds", "other"}


async def test_other_content_under_a_known_id_is_refused_and_never_swallowed() -> None:
    other = {**LESSON, "key_insight": "something else"}
    async with asked() as gateway:
        answer = await gateway.client.post("/v1/reflections", json=[LESSON, other, LESSON])
        assert [one["status"] for one in answer.json()["items"]] == ["accepted", "refused", "accepted"]
        assert answer.status_code == 207
        again = await gateway.client.post("/v1/reflections", json=other)

        assert again.status_code == 409
        assert "support/refunds has other content under the id r1" in again.json()["detail"]
        assert [one.key_insight for one in await written(gateway, topics.REFLECTIONS)] == ["check the date"]


async def test_without_an_id_the_same_content_has_the_same_id() -> None:
    anonymous = {"playbook": "support/refunds", "key_insight": "check the date"}
    async with asked() as gateway:
        answers = [await gateway.client.post("/v1/reflections", json=anonymous) for _ in range(2)]
        other = await gateway.client.post("/v1/reflections", json={**anonymous, "key_insight": "else"})

        ids = [one.json()["items"][0]["id"] for one in (*answers, other)]
        assert ids[0] == ids[1] != ids[2]
        assert len(await written(gateway, topics.REFLECTIONS)) == 2


async def test_a_bad_item_hurts_only_itself() -> None:
    wrong: list[Any] = [
        {"playbook": "?", "reflection_id": "x"},
        {"reflection_id": "x"},
        17,
        None,
        [LESSON],
        {**LESSON, "created_at_ms": "soon"},
        {**LESSON, "created_at_ms": True},
        {**LESSON, "created_at_ms": 1 << 70},
        {**LESSON, "reasoning": "x" * 270_000},
    ]
    async with asked() as gateway:
        answer = await gateway.client.post("/v1/reflections", json=[*wrong, LESSON])

        assert answer.status_code == 207
        assert (answer.json()["accepted"], answer.json()["refused"]) == (1, len(wrong))
        statuses = [one["problem"]["status"] for one in answer.json()["items"][:-1]]
        assert statuses == [422] * 8 + [413]
        assert len(await written(gateway, topics.REFLECTIONS)) == 1
        alone = [
            await gateway.client.post("/v1/reflections", content=json.dumps(one), headers=JSON)
            for one in wrong
        ]
        assert [one.status_code for one in alone] == [422] * 4 + [202] + [422] * 3 + [413]
        refused = await gateway.client.post("/v1/reflections", json=wrong[:3])
        assert refused.status_code == 422
        assert [one["where"] for one in refused.json()["errors"]] == ["0.playbook", "1.playbook", "2"]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"a": NaN}', b"[" * 100_000, b'"\\ud800"', b"[]"])
async def test_what_is_no_json_of_ours_is_refused(body: bytes) -> None:
    async with asked() as gateway:
        answer = await gateway.client.post("/v1/reflections", content=body, headers=JSON)
        assert answer.status_code == 422
        assert answer.headers["content-type"] == "application/problem+json"


async def test_a_problem_never_repeats_what_was_sent() -> None:
    secret = {**LESSON, "created_at_ms": "sk-verysecretkey123456", "playbook": "sk-verysecretkey123456 "}
    async with asked() as gateway:
        answer = await gateway.client.post("/v1/reflections", json=secret)
        assert answer.status_code == 422
        assert "verysecret" not in answer.text


async def test_secrets_in_texts_do_not_reach_the_log() -> None:
    told = {**LESSON, "reasoning": "used sk-verysecretkey123456", "side_info": {"password": "hunter2hunter2"}}
    async with asked() as gateway:
        await gateway.client.post("/v1/reflections", json=told)
        (found,) = await written(gateway, topics.REFLECTIONS)
        assert found.reasoning == "used ***"
        assert found.side_info == {"password": "***"}


async def test_the_usage_that_a_client_claims_is_discarded() -> None:
    async with asked() as gateway:
        body = {**LESSON, "usage": {"calls": 1, "tokens_in": 10**12, "seconds": 9.5}}
        assert (await gateway.client.post("/v1/reflections", json=body)).status_code == 202
        (lesson,) = await written(gateway, topics.REFLECTIONS)
        assert lesson.usage == Usage()


async def test_a_batch_has_a_size_limit() -> None:
    items = [{**LESSON, "reflection_id": f"r{number}"} for number in range(4)]
    async with asked(max_batch=3) as gateway:
        assert (await gateway.client.post("/v1/reflections", json=items)).status_code == 422
        assert (await gateway.client.post("/v1/reflections", json=items[:3])).status_code == 202


async def test_a_large_body_is_refused_before_it_is_read_or_parsed() -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1000
            yield b" " * 1000

    async with asked(max_body_bytes=10_000) as gateway:
        told = await gateway.client.post("/v1/reflections", content=b" " * 10_001, headers=JSON)
        untold = await gateway.client.post("/v1/reflections", content=endless(), headers=JSON)
        fits = await gateway.client.post("/v1/reflections", json=LESSON)

    assert (told.status_code, untold.status_code, fits.status_code) == (413, 413, 202)
    assert sent <= 12_000


@pytest.mark.parametrize(
    "limits",
    [
        {"inflight_requests": 2},
        {"inflight_bytes": 2200, "max_body_bytes": 1024},
    ],
)
async def test_too_much_in_flight_is_answered_with_come_again_later(limits: dict[str, Any]) -> None:
    log = Gate()
    async with asked(log, **limits) as gateway:

        def send(number: int) -> asyncio.Task[Any]:
            lesson = {**LESSON, "reflection_id": f"r{number}", "reasoning": "x" * 900}
            return asyncio.create_task(gateway.client.post("/v1/reflections", json=lesson))

        first = [send(number) for number in range(2)]
        await until(lambda: log.waiting == 2)
        refused = await send(3)
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        assert (await gateway.client.get("/v1/playbooks")).status_code == 200
        log.open.set()
        assert {one.status_code for one in await asyncio.gather(*first)} == {202}
        assert (await send(4)).status_code == 202


async def test_while_the_broker_is_away_publishing_is_refused_at_once_and_reading_goes_on() -> None:
    async with asked() as gateway:
        await published(gateway.log, version("support/refunds", 1))
        await until(lambda: gateway.context.playbooks.latest("support/refunds").version == 1)
        gateway.context.health.outage = lambda: "waiting for Kafka"
        refused = await gateway.client.post("/v1/reflections", json=LESSON)
        read = await gateway.client.get("/v1/playbooks/support/refunds")
        gateway.context.health.outage = lambda: None
        taken = await gateway.client.post("/v1/reflections", json=LESSON)
        assert (refused.status_code, read.status_code, taken.status_code) == (503, 200, 202)
        assert int(refused.headers["retry-after"]) >= 1
        assert taken.json()["accepted"] == 1


async def refused(gateway: Asked, path: str, body: Any) -> Any:
    answer = await gateway.client.post(path, json=body)
    assert answer.status_code == 422
    return answer.json()


async def test_an_unknown_field_is_refused_with_the_nearest_known_one() -> None:
    typo = {"playbook": "support/refunds", "keyinsight": "check the date"}
    nested = {
        **LESSON,
        "bullet_tags": [{"id": "a", "tag": "helpful"}, {"id": "b", "tag": "helpful", "tga": 1}],
    }
    async with asked() as gateway:
        found = await refused(gateway, "/v1/reflections", typo)
        assert found["detail"] == "not a reflection: keyinsight: unknown field; did you mean key_insight?"
        assert found["errors"][0] == {
            "where": "keyinsight",
            "detail": "unknown field; did you mean key_insight?",
        }
        found = await refused(gateway, "/v1/reflections", {**LESSON, "zzz": 1})
        assert found["errors"][0]["detail"].startswith("unknown field; known are reflection_id, playbook, ")
        found = await refused(gateway, "/v1/reflections", nested)
        assert found["errors"] == [
            {"where": "bullet_tags.1.tga", "detail": "unknown field; did you mean tag?"}
        ]
        found = await refused(gateway, "/v1/reflections", {**LESSON, "shown": {"version": 1, "entries": []}})
        assert found["errors"] == [
            {"where": "shown.entries", "detail": "unknown field; did you mean entry_ids?"}
        ]
        found = await refused(gateway, "/v1/traces", {**TRACE, "feedbak": "no"})
        assert found["errors"] == [{"where": "feedbak", "detail": "unknown field; did you mean feedback?"}]
        found = await refused(gateway, "/v1/traces", [{**TRACE, "feedbak": "no"}, {"playbook": "p"}])
        assert [one["where"] for one in found["errors"]] == ["0.feedbak", "1.task"]
        some = await gateway.client.post("/v1/reflections", json=[LESSON, typo])
        assert (some.status_code, some.json()["accepted"]) == (207, 1)
        assert some.json()["items"][1]["problem"]["errors"][0]["where"] == "keyinsight"
        secret = await refused(gateway, "/v1/reflections", {**LESSON, "sk-verysecretkey123456": "x"})
        assert "verysecret" not in json.dumps(secret)


@pytest.mark.parametrize(
    "lesson",
    [
        {},
        {"key_insight": ""},
        {"key_insight": " \t\n", "reasoning": "\u2003"},
        {"side_info": {"Inputs": " "}},
        {"bullet_tags": [{"id": "a", "tag": "helpful"}]},
    ],
    ids=str,
)
async def test_an_empty_lesson_is_refused_with_the_remedy(lesson: dict[str, Any]) -> None:
    async with asked() as gateway:
        found = await refused(gateway, "/v1/reflections", {"playbook": "support/refunds", **lesson})
        assert found["detail"] == (
            "the lesson is empty: fill in at least one of key_insight, correct_approach, root_cause_analysis,"
            " error_identification, reasoning, side_info"
        )
        assert await written(gateway, topics.REFLECTIONS) == []


async def test_any_one_field_that_says_something_makes_a_lesson() -> None:
    said: list[dict[str, Any]] = [{name: "x"} for name in LESSON_FIELDS]
    lessons = [{"playbook": "p", **one} for one in (*said, {"side_info": {"Feedback": "x"}})]
    async with asked() as gateway:
        answer = await gateway.client.post("/v1/reflections", json=lessons)
        assert (answer.status_code, answer.json()["accepted"]) == (202, 6)


async def test_an_empty_trace_is_refused_with_the_remedy() -> None:
    async with asked() as gateway:
        found = await refused(gateway, "/v1/traces", {"playbook": "support/refunds", "task": " "})
        assert found["detail"] == (
            "the trace is empty: fill in at least one of task, trajectory, answer, feedback"
        )


async def test_a_text_too_large_for_a_record_is_refused_before_any_pattern_sees_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[object] = []
    monkeypatch.setattr(publishing, "redacted_deep", seen.append)
    async with asked() as gateway:
        large = {**LESSON, "key_insight": "eyJ-" * 300_000}
        answer = await gateway.client.post("/v1/reflections", json=large)
        assert answer.status_code == 413
        assert not seen


async def test_an_object_of_too_many_values_is_refused_before_they_are_checked() -> None:
    """Four megabytes of them took a minute and gigabytes of memory."""
    async with asked() as gateway:
        answer = await gateway.client.post("/v1/traces", json={**TRACE, "bullet_ids": [0] * (MAX_VALUES + 1)})
    assert answer.status_code == 413
    assert f"at most {MAX_VALUES} values" in answer.json()["detail"]


async def test_playbooks_that_somebody_invents_are_counted_for_so_many_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publishing, "MAX_TRACED", 10)
    async with asked() as gateway:
        await gateway.client.post(
            "/v1/traces", json=[{**TRACE, "playbook": f"invented/{n}"} for n in range(30)]
        )
        assert list(gateway.context.traced) == [f"invented/{n}" for n in range(20, 30)]


async def test_of_very_many_wrong_values_only_the_number_is_told() -> None:
    async with asked() as gateway:
        few = await refused(gateway, "/v1/traces", {**TRACE, "bullet_ids": [0] * MAX_NAMED})
        many = await refused(gateway, "/v1/traces", {**TRACE, "bullet_ids": [0] * (MAX_NAMED + 1)})
    assert len(few["errors"]) == MAX_ERRORS
    assert few["errors"][0]["where"] == "bullet_ids.0"
    (only,) = many["errors"]
    assert only == {"where": "Trace", "detail": f"{MAX_NAMED + 1} values are wrong, too many to name"}


async def test_a_batch_of_many_unknown_fields_compares_few_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def counted(name: str, *_: Any, **__: Any) -> list[str]:
        compared.append(name)
        return []

    monkeypatch.setattr("combee.core.formats.intake.get_close_matches", counted)
    async with asked() as gateway:
        found = await refused(gateway, "/v1/traces", [{f"field-{n}": 1 for n in range(20)}] * 100)
    assert len(compared) <= 200
    assert found["errors"]


async def test_large_bodies_are_decoded_one_after_the_other_and_small_ones_do_not_wait_for_them() -> None:
    """In memory a body is twenty times as large: sixteen of a key at once were more than a gateway may use."""
    log, text = Gate(), "check the date " * 3_500
    large = [[{**LESSON, "reflection_id": f"{of}-{n}", "reasoning": text} for n in range(50)] for of in "abc"]
    async with asked(log) as gateway:
        sent = [asyncio.create_task(gateway.client.post("/v1/reflections", json=body)) for body in large]
        await until(lambda: log.waiting == 1)
        small = asyncio.create_task(gateway.client.post("/v1/reflections", json=LESSON))
        await until(lambda: log.waiting == 2)
        assert (await gateway.client.get("/v1/playbooks")).status_code == 200
        assert log.waiting == 2
        sent[2].cancel()
        log.open.set()
        assert (await small).status_code == 202
        assert [one.status_code for one in await asyncio.gather(*sent[:2])] == [202, 202]
        again = await gateway.client.post("/v1/reflections", json=large[2])
        assert again.status_code == 202


async def test_a_large_body_does_not_wait_for_room_without_end() -> None:
    async with asked(ack_timeout_s=0.05) as gateway:
        taking, large = Publishing(gateway.context), b" " * gateway.context.limits.max_body_bytes
        async with taking.room_for(large):
            with pytest.raises(TimeoutError):
                async with taking.room_for(large):
                    pass
        async with taking.room_for(large):
            pass
