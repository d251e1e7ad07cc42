"""Requests whose length can be read in two ways: answered once, with 400, and the connection is closed."""

import json

import pytest

from combee.adapters.clock import SystemClock
from combee.adapters.memory import MemoryLog
from support import framing
from support.gateway import CONFIGURED, READER, WRITER, served

PATH = "/v1/reflections"
HEADERS = (f"Authorization: Bearer {WRITER}", "Content-Type: application/json")
BODY = json.dumps({"playbook": "support/refunds", "key_insight": "Ask first."}).encode()
SECOND = f"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {READER}\r\n\r\n".encode()
AMBIGUOUS = framing.ambiguous(PATH, *HEADERS, body=BODY)
CLEAR = {
    "chunked": framing.request(PATH, *HEADERS, "Transfer-Encoding: chunked", body=framing.chunked(BODY)),
    "of a length": framing.request(PATH, *HEADERS, f"Content-Length: {len(BODY)}", body=BODY),
}


async def answers(sent: bytes) -> list[bytes]:
    async with served(MemoryLog(SystemClock()), **CONFIGURED) as (address, _):
        return await framing.statuses(address, sent)


@pytest.mark.parametrize("first", AMBIGUOUS.values(), ids=AMBIGUOUS)
async def test_a_request_of_two_lengths_is_answered_once_with_400_and_the_connection_closed(
    first: bytes,
) -> None:
    assert await answers(first + SECOND) == [b"400"]


@pytest.mark.parametrize("first", CLEAR.values(), ids=CLEAR)
async def test_a_request_of_one_length_keeps_its_connection(first: bytes) -> None:
    last = SECOND.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    assert await answers(first + last) == [b"202", b"200"]
