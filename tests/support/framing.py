"""Requests whose length can be read in two ways, as bytes, and what a server answers to them."""

import asyncio
import re


def request(path: str, *headers: str, body: bytes, version: str = "1.1") -> bytes:
    """Return a POST with exactly these headers, and ``Host``."""
    head = [f"POST {path} HTTP/{version}", "Host: 127.0.0.1", *headers, "", ""]
    return "\r\n".join(head).encode() + body


def chunked(body: bytes) -> bytes:
    """Return a body in one chunk."""
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def ambiguous(path: str, *headers: str, body: bytes) -> dict[str, bytes]:
    """Return requests of a body, by what makes them ambiguous; ``headers``: what they all have."""
    chunks = chunked(body)

    def asked(*lengths: str, body: bytes = chunks, version: str = "1.1") -> bytes:
        return request(path, *headers, *lengths, body=body, version=version)

    return {
        "both": asked("Content-Length: 4", "Transfer-Encoding: chunked"),
        "both, the other way round": asked("Transfer-Encoding: chunked", "Content-Length: 4"),
        "both, and the length is right": asked(
            f"Content-Length: {len(chunks)}", "Transfer-Encoding: chunked"
        ),
        "both, and the length is none": asked("Content-Length: 0", "Transfer-Encoding: chunked"),
        "both, in capitals": asked("CONTENT-LENGTH: 4", "TRANSFER-ENCODING: CHUNKED"),
        "chunked in HTTP/1.0": asked("Transfer-Encoding: chunked", "Connection: keep-alive", version="1.0"),
        "two lengths": asked("Content-Length: 4", f"Content-Length: {len(body)}", body=body),
        "two lengths in one": asked(f"Content-Length: 4, {len(body)}", body=body),
        "a length with a sign": asked(f"Content-Length: +{len(body)}", body=body),
        "an unknown encoding": asked("Transfer-Encoding: xchunked"),
        "two encodings": asked("Transfer-Encoding: gzip, chunked"),
        "chunked twice": asked("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        "a space before the colon": asked("Content-Length: 4", "Transfer-Encoding : chunked"),
        "a folded header": asked("Content-Length: 4", "Transfer-Encoding:", " chunked"),
        "a tab before the value's end": asked("Content-Length: 4", "Transfer-Encoding: \tchunked"),
    }


async def statuses(address: str, sent: bytes) -> list[bytes]:
    """Return the status of each answer until the server closes the connection."""
    host, _, port = address.removeprefix("http://").partition("/")[0].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(sent)
        came = await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()
    return re.findall(rb"HTTP/1\.1 (\d{3})", came)
