"""Requests whose length can be read in two ways: answered once, with 400, and the connection is closed."""

import asyncio
import json
import re

import pytest

from combee.adapters.memory import MemoryLog
from combee.clock import SystemClock
from support.gateway import CONFIGURED, READER, WRITER, served

BODY = json.dumps({"playbook": "support/refunds", "key_insight": "Ask first."}).encode()
SECOND = f"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {READER}\r\n\r\n".encode()
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)


def asked(*headers: str, body: bytes = CHUNKED, version: str = "1.1") -> bytes:
    head = [
        f"POST /v1/reflections HTTP/{version}",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {WRITER}",
        "Content-Type: application/json",
        *headers,
        "",
        "",
    ]
    return "\r\n".join(head).encode() + body


AMBIGUOUS = {
    "both": asked("Content-Length: 4", "Transfer-Encoding: chunked"),
    "both, the other way round": asked("Transfer-Encoding: chunked", "Content-Length: 4"),
    "both, and the length is right": asked(f"Content-Length: {len(CHUNKED)}", "Transfer-Encoding: chunked"),
    "both, and the length is none": asked("Content-Length: 0", "Transfer-Encoding: chunked"),
    "both, in capitals": asked("CONTENT-LENGTH: 4", "TRANSFER-ENCODING: CHUNKED"),
    "chunked in HTTP/1.0": asked("Transfer-Encoding: chunked", "Connection: keep-alive", version="1.0"),
    "two lengths": asked("Content-Length: 4", f"Content-Length: {len(BODY)}", body=BODY),
    "two lengths in one": asked(f"Content-Length: 4, {len(BODY)}", body=BODY),
    "a length with a sign": asked(f"Content-Length: +{len(BODY)}", body=BODY),
    "an unknown encoding": asked("Transfer-Encoding: xchunked"),
    "two encodings": asked("Transfer-Encoding: gzip, chunked"),
    "chunked twice": asked("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    "a space before the colon": asked("Content-Length: 4", "Transfer-Encoding : chunked"),
    "a folded header": asked("Content-Length: 4", "Transfer-Encoding:", " chunked"),
    "a tab before the value's end": asked("Content-Length: 4", "Transfer-Encoding: \tchunked"),
}


async def answers(sent: bytes) -> list[bytes]:
    """Return the status of each answer until the server closes the connection."""
    async with served(MemoryLog(SystemClock()), **CONFIGURED) as (address, _):
        host, _, port = address.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(sent)
            came = await asyncio.wait_for(reader.read(), 10)
        finally:
            writer.close()
    return re.findall(rb"HTTP/1\.1 (\d{3})", came)


@pytest.mark.parametrize("first", AMBIGUOUS.values(), ids=AMBIGUOUS)
async def test_a_request_of_two_lengths_is_answered_once_with_400_and_the_connection_closed(
    first: bytes,
) -> None:
    assert await answers(first + SECOND) == [b"400"]


@pytest.mark.parametrize(
    "first", [asked("Transfer-Encoding: chunked"), asked(f"Content-Length: {len(BODY)}", body=BODY)]
)
async def test_a_request_of_one_length_keeps_its_connection(first: bytes) -> None:
    last = SECOND.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    assert await answers(first + last) == [b"202", b"200"]
