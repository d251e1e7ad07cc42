import asyncio
import json
import signal
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from combee.adapters.ports import FatalError
from combee.core.methods.ace import aggregate_prompt, answer_prompt, combine_prompt, reflect_prompt
from combee.core.playbook.versions import empty
from combee_schemas.model import Prompt
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Operation, OperationKind
from combee_sim.embeddings import EMBEDDING
from combee_sim.family.knowledge import Knowledge, Row
from combee_sim.inprocess import as_request
from combee_sim.law.samples import family_traces, task_traces
from combee_sim.roles.respond import respond
from combee_sim.server.faults import parse_faults
from combee_sim.server.latency import Latency
from combee_sim.server.server import WallClock, running
from combee_sim.server.standin import CallLog, SimOptions, StandIn
from combee_sim.server.web import Web


def question(number: int) -> dict[str, Any]:
    return as_request(answer_prompt(empty("p"), f"Question {number}"))


def reflections(count: int) -> list[Reflection]:
    return [
        Reflection(reflection_id=f"r-{n}", playbook="p", key_insight=f"Lesson {n}.") for n in range(count)
    ]


def client(base_url: str, timeout_s: float = 10.0) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=base_url, timeout=timeout_s)


def direct(options: SimOptions) -> httpx.AsyncClient:
    """Speak to the application without a socket, where the connection is not what is tested."""
    web = Web(StandIn(options, WallClock(), CallLog(None)), asyncio.Event())
    return httpx.AsyncClient(transport=httpx.ASGITransport(web.app()), base_url="http://simulated/v1")


async def ask(options: SimOptions, body: dict[str, Any]) -> httpx.Response:
    async with direct(options) as http:
        return await http.post("/chat/completions", json=body)


def content(answer: httpx.Response) -> str:
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text


@pytest.mark.parametrize(
    "prompt",
    [
        aggregate_prompt(empty("p"), reflections(10)),
        combine_prompt(empty("p"), [Operation(kind=OperationKind.ADD, content="Lock the gate.")]),
        reflect_prompt(family_traces(Random(0), 1)[0], ()),
        answer_prompt(empty("p"), "What now?"),
    ],
    ids=["aggregate", "combine", "reflect", "answer"],
)
async def test_a_chat_request_gets_the_reply_of_its_role_and_says_that_it_is_simulated(prompt: Any) -> None:
    request = as_request(prompt)
    answer = await ask(SimOptions(seed=3), request)
    body, said = answer.json(), respond(request, 3)
    assert json.loads(content(answer)) == said.reply
    assert (body["model"], body["system_fingerprint"]) == ("simulated", "simulated")
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["prompt_tokens"] == said.tokens_in
    assert body["usage"]["completion_tokens"] == said.tokens_out


async def test_a_second_call_finds_what_it_shares_with_the_first_in_the_simulated_prompt_cache() -> None:
    book = "".join(f"[calc-{n:05d}] Weigh the {n}th parcel before it is packed.\n" for n in range(200))
    requests = [as_request(Prompt(system=book, user=f"group {n}", reply_name="text")) for n in ("one", "two")]
    async with direct(SimOptions()) as http:
        usages = [(await http.post("/chat/completions", json=r)).json()["usage"] for r in requests]
        stats = (await http.get("../sim/stats")).json()
    cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
    assert cached[0] == 0
    assert 0.9 * usages[1]["prompt_tokens"] < cached[1] <= usages[1]["prompt_tokens"]
    assert stats["tokens_cached"] == cached[1]


async def test_a_server_that_has_the_data_knows_the_formula_behind_a_question() -> None:
    row = Row(
        question="What is 5 of ten?",
        statement="Use formula Quick Ratio to answer the question. Formula: Quick Ratio = a / b, Explanation: none.",
        target="0.5",
    )
    request = as_request(reflect_prompt(task_traces([(row.question, row.target)])[0], ()))
    told = await ask(SimOptions(knowledge=Knowledge(rows=(row,))), request)
    assert json.loads(content(told))["key_insight"].startswith("Quick Ratio: compute it with")
    assert "Quick Ratio" not in content(await ask(SimOptions(), request))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"model": EMBEDDING, "input": "a text"}, 200),
        ({"model": EMBEDDING, "input": ["a text", "another"]}, 200),
        ({"model": "simulated", "input": "a text"}, 404),
        ({"model": EMBEDDING}, 400),
        ({"model": EMBEDDING, "input": [1]}, 400),
    ],
)
async def test_embeddings_are_simulated_deterministic_and_counted(body: dict[str, Any], status: int) -> None:
    async with direct(SimOptions()) as http:
        answer, again = [await http.post("/embeddings", json=body) for _ in range(2)]
        stats = (await http.get("http://simulated/sim/stats")).json()
        await http.post("http://simulated/sim/faults", json={"down_for_s": 60})
        down = await http.post("/embeddings", json=body)
    assert (answer.status_code, answer.json()) == (status, again.json())
    if status == 200:
        texts = 1 if isinstance(body["input"], str) else len(body["input"])
        assert answer.json()["model"] == EMBEDDING
        assert [len(each["embedding"]) for each in answer.json()["data"]] == [64] * texts
        assert stats["texts_embedded"] == 2 * texts
        assert down.status_code == 503


async def test_the_models_are_called_simulated() -> None:
    async with direct(SimOptions()) as http:
        listed = (await http.get("/models")).json()["data"]
        assert [model["id"] for model in listed] == ["simulated", EMBEDDING]
        other = await http.post("/chat/completions", json=question(1) | {"model": "gpt-9"})
        assert (other.status_code, other.json()["error"]["code"]) == (404, "model_not_found")
        named = await http.post("/chat/completions", json=question(1) | {"model": "openai/simulated"})
        assert named.status_code == 200


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (b"{", "JSON"),
        (b"[]", "object"),
        (b'{"model": "simulated"}', "messages"),
    ],
)
async def test_a_request_that_cannot_be_answered_is_refused_clearly(raw: bytes, word: str) -> None:
    async with direct(SimOptions()) as http:
        answer = await http.post("/chat/completions", content=raw)
    assert answer.status_code == 400
    assert word in answer.json()["error"]["message"]


async def test_a_streamed_reply_comes_in_pieces_and_is_the_same_text() -> None:
    whole = await ask(SimOptions(seed=3), question(1))
    async with running(SimOptions(seed=3)) as base_url, AsyncOpenAI(base_url=base_url, api_key="k") as openai:
        asked: Any = {"model": "simulated", "messages": question(1)["messages"], "stream": True}
        stream = await openai.chat.completions.create(**asked, stream_options={"include_usage": True})
        pieces = [piece async for piece in stream]
        bare = [piece async for piece in await openai.chat.completions.create(**asked)]
        async with openai.chat.completions.stream(
            model="simulated", messages=question(1)["messages"]
        ) as helper:
            final = await helper.get_final_completion()
    *texts, last = pieces
    assert len(texts) > 2
    assert "".join(piece.choices[0].delta.content or "" for piece in texts) == content(whole)
    assert [piece.choices[0].finish_reason for piece in texts if piece.choices[0].finish_reason] == ["stop"]
    assert (last.choices, last.usage.model_dump(exclude_none=True)) == ([], whole.json()["usage"])
    assert {(piece.model, piece.system_fingerprint) for piece in pieces} == {("simulated", "simulated")}
    assert not any(piece.usage for piece in bare)
    assert final.choices[0].message.content == content(whole)


async def test_a_stream_fails_as_a_whole_reply_does() -> None:
    refused = await ask(SimOptions(faults=parse_faults(["429=1"])), question(1) | {"stream": True})
    assert refused.status_code == 429
    cut = await ask(SimOptions(faults=parse_faults(["truncated=1"])), question(1) | {"stream": True})
    assert '"finish_reason": "length"' in cut.text


async def test_a_429_says_when_to_come_back() -> None:
    answer = await ask(SimOptions(faults=parse_faults(["429=1"]), retry_after_s=0.5), question(1))
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "0.5")


async def test_a_500_is_an_error_body() -> None:
    answer = await ask(SimOptions(faults=parse_faults(["500=1"])), question(1))
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")


async def test_a_reset_closes_the_connection_without_an_answer() -> None:
    async with running(SimOptions(faults=parse_faults(["reset=1"]))) as base_url, client(base_url) as http:
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            await http.post("/chat/completions", json=question(1))
        assert (await http.get(_admin(http, "stats"))).json()["outcomes"] == {"reset": 1}


async def test_a_hang_lasts_until_the_client_gives_up() -> None:
    async with (
        running(SimOptions(faults=parse_faults(["hang=1"]))) as base_url,
        client(base_url, timeout_s=0.2) as http,
    ):
        with pytest.raises(httpx.ReadTimeout):
            await http.post("/chat/completions", json=question(1))


async def test_a_server_with_a_hanging_call_stops_and_answers_it() -> None:
    async with AsyncExitStack() as clients:
        async with running(SimOptions(faults=parse_faults(["hang=1"]))) as base_url:
            http = await clients.enter_async_context(client(base_url))
            waiting = asyncio.create_task(http.post("/chat/completions", json=question(2)))
            await _until_in_flight(http, 1)
        assert (await waiting).status_code == 503


async def _until_in_flight(http: httpx.AsyncClient, wanted: int) -> None:
    async with asyncio.timeout(5):
        while (await http.get(_admin(http, "stats"))).json()["in_flight"] != wanted:
            pass


def _admin(http: httpx.AsyncClient, path: str) -> str:
    return str(http.base_url).replace("/v1/", f"/sim/{path}")


async def test_a_truncated_reply_says_that_it_is_cut() -> None:
    answer = await ask(SimOptions(faults=parse_faults(["truncated=1"])), question(1))
    assert answer.json()["choices"][0]["finish_reason"] == "length"
    with pytest.raises(ValueError, match=r"[Uu]nterminated|Expecting"):
        json.loads(content(answer))


async def test_a_malformed_reply_is_no_json() -> None:
    answer = await ask(SimOptions(faults=parse_faults(["malformed=1"])), question(1))
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(content(answer))


async def test_an_empty_reply_is_empty() -> None:
    assert content(await ask(SimOptions(faults=parse_faults(["empty=1"])), question(1))) == ""


async def test_a_huge_reply_is_ten_megabytes() -> None:
    answer = await ask(SimOptions(faults=parse_faults(["huge=1"])), question(1))
    assert len(answer.content) >= 10 * 1024 * 1024


async def test_a_prompt_beyond_the_context_is_refused_as_a_real_server_does() -> None:
    answer = await ask(SimOptions(context_tokens=10), question(1))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")


async def test_faults_can_be_set_and_lifted_while_it_runs() -> None:
    async with running(SimOptions()) as base_url, client(base_url) as http:
        faults, stats = _admin(http, "faults"), _admin(http, "stats")
        assert (await http.post("/chat/completions", json=question(1))).status_code == 200
        assert (await http.post(faults, json={"5xx": 1})).json()["faults"] == {"500": 1.0}
        assert (await http.post("/chat/completions", json=question(1))).status_code == 500
        assert (await http.post(faults, json={"down_for_s": 60})).status_code == 200
        assert (await http.post("/chat/completions", json=question(1))).status_code == 503
        assert (await http.post(faults, json={})).status_code == 200
        assert (await http.post("/chat/completions", json=question(1))).status_code == 200
        assert (await http.post(faults, json={"fire": 1})).status_code == 400
        counted = (await http.get(stats)).json()
    assert counted["simulated"] is True
    assert counted["calls"] == {"agent": 4}
    assert counted["outcomes"] == {"ok": 2, "500": 1, "down": 1}


async def test_a_retry_of_a_call_that_failed_can_succeed() -> None:
    async with direct(SimOptions(faults=parse_faults(["500=0.5"]))) as http:
        codes = [(await http.post("/chat/completions", json=question(1))).status_code for _ in range(12)]
    assert set(codes) == {200, 500}


async def test_every_call_is_logged_as_one_line_before_its_answer_arrives(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "calls.jsonl"
    options = SimOptions(call_log=log, faults=parse_faults(["429=0.5"]))
    async with running(options) as base_url, client(base_url) as http:
        for number in range(10):
            answer = await http.post("/chat/completions", json=question(number))
            lines = [json.loads(line) for line in log.read_text().splitlines()]
            assert len(lines) == number + 1
            assert lines[-1]["outcome"] == ("ok" if answer.status_code == 200 else "429")
    last = lines[-1]
    said = respond(question(9), 0)
    assert (last["role"], last["prompt_hash"], last["tokens_in"]) == (
        "agent",
        said.prompt_hash,
        said.tokens_in,
    )
    assert last["end_ms"] >= last["start_ms"] > 0
    assert last["simulated"] is True
    assert len(Counter(line["outcome"] for line in lines)) == 2


async def test_slow_calls_run_side_by_side() -> None:
    options = SimOptions(latency=Latency(median_s=0.4))
    limits = httpx.Limits(max_connections=None)
    loop = asyncio.get_running_loop()
    async with (
        running(options) as base_url,
        httpx.AsyncClient(base_url=base_url, timeout=20, limits=limits) as http,
    ):
        start = loop.time()
        answers = await asyncio.gather(*(http.post("/chat/completions", json=question(n)) for n in range(64)))
        took = loop.time() - start
        counted = (await http.get(_admin(http, "stats"))).json()
    assert {answer.status_code for answer in answers} == {200}
    assert counted["most_in_flight"] == 64
    assert 0.4 <= took < 0.4 * 64 / 4


async def test_a_taken_port_and_a_public_address_are_refused_with_the_remedy() -> None:
    async with running(SimOptions()) as base_url:
        port = httpx.URL(base_url).port
        assert port is not None
        with pytest.raises(FatalError, match="choose another port"):
            async with running(SimOptions(port=port)):
                pass
    with pytest.raises(FatalError, match="loopback"):
        async with running(SimOptions(host="192.0.2.1")):
            pass


SERVE = """
import asyncio
from combee_sim.server.standin import SimOptions
from combee_sim.server.server import serve
asyncio.run(serve(SimOptions(), on_ready=lambda url: print(url, flush=True)))
"""


async def test_serve_tells_its_url_and_stops_cleanly_on_sigterm() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(20):
            base_url = (await process.stdout.readline()).decode().strip()
            async with client(base_url) as http:
                assert (await http.get("/models")).status_code == 200
            process.send_signal(signal.SIGTERM)
            _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (process.returncode, errors) == (0, b"")
