"""An endpoint that scores: what it is sent, and what it may say."""

import gzip
import json

import httpx
import pytest

from combee.adapters.http.scorer import MAX_REPLY, EndpointScorer
from combee.adapters.ports import CombeeError, PoisonError, TransientError
from support.rows import each_row

QUESTION = {"id": "q-1", "question": "2 + 2?", "target": "4"}


def packed(content: bytes) -> httpx.Response:
    stream = httpx.ByteStream(gzip.compress(content))
    return httpx.Response(200, headers={"content-encoding": "gzip"}, stream=stream)


async def scored(reply: httpx.Response, sent: list[httpx.Request] | None = None) -> float:
    def answer(request: httpx.Request) -> httpx.Response:
        if sent is not None:
            sent.append(request)
        return httpx.Response(reply.status_code, headers=reply.headers, stream=reply.stream)

    scorer = EndpointScorer(
        "http://user:secret@scores.test:8080/v1?key=secret",
        timeout_s=5,
        transport=httpx.MockTransport(answer),
    )
    try:
        return await scorer("[a-1] add them", QUESTION)
    finally:
        await scorer.close()


async def test_it_is_sent_the_playbook_and_the_question_and_says_a_number() -> None:
    sent: list[httpx.Request] = []
    assert await scored(httpx.Response(200, json={"score": 0.5, "more": "ignored"}), sent) == 0.5
    assert json.loads(sent[0].content) == {"playbook": "[a-1] add them", "question": QUESTION}


@each_row(
    ("reply", "kind", "says"),
    [
        (httpx.Response(503), TransientError, "answers 503"),
        (httpx.Response(404), TransientError, "answers 404"),
        (httpx.Response(200, text="<html>"), PoisonError, 'not {"score": number}'),
        (httpx.Response(200, json=[1]), PoisonError, 'not {"score": number}'),
        (httpx.Response(200, json={"score": None}), PoisonError, 'not {"score": number}'),
        (httpx.Response(200, json={"score": 10**400}), PoisonError, 'not {"score": number}'),
        (httpx.Response(200, text="[" * 60_000), PoisonError, 'not {"score": number}'),
        (httpx.Response(200, content=b" " * (MAX_REPLY + 1)), PoisonError, "longer than"),
        (packed(b'{"score": 1}' + b" " * (1 << 20)), PoisonError, 'not {"score": number}'),
    ],
)
async def test_anything_else_is_an_error_that_names_the_address_but_no_secret(
    reply: httpx.Response, kind: type[CombeeError], says: str
) -> None:
    with pytest.raises(kind) as refused:
        await scored(reply)
    assert says in str(refused.value)
    assert "http://scores.test:8080/v1" in str(refused.value)
    assert "secret" not in str(refused.value)
