"""Limits of request bodies per key (size, time, concurrency), applied before parsing."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from combee.gateway.access.access import API, CALLER
from combee.gateway.limits import GatewayLimits
from combee.gateway.problems import Refusal, busy


@dataclass(slots=True)
class _Taken:
    """Open requests and bytes of one key."""

    requests: int = 0
    bytes: int = 0


class BodyLimits:
    """ASGI middleware that reads a whole body within its limits, or refuses it."""

    def __init__(self, app: ASGIApp, *, limits: GatewayLimits) -> None:
        self._app = app
        self._limits = limits
        self._taken: defaultdict[str, _Taken] = defaultdict(_Taken)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read one request's body and pass the request on."""
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].startswith(API):
            await self._app(scope, receive, send)
            return
        taken = self._taken[scope[CALLER].name]
        try:
            reserved = self._reserve(taken, Headers(scope=scope))
        except Refusal as refusal:
            await refusal.answer()(scope, receive, send)
            return
        try:
            body = await self._read(receive)
            await self._app(scope, _replayed(body, receive), send)
        except Refusal as refusal:
            await refusal.answer()(scope, receive, send)
        finally:
            taken.requests -= 1
            taken.bytes -= reserved

    def _reserve(self, taken: _Taken, headers: Headers) -> int:
        most = self._limits.max_body_bytes
        length = headers.get("content-length", "")
        size = int(length) if length.isascii() and length.isdigit() else most
        if size > most:
            raise _too_large(most)
        full = taken.bytes + size > self._limits.inflight_bytes and taken.requests
        if taken.requests >= self._limits.inflight_requests or full:
            raise busy("too many requests of this key are open, or wait for Kafka's acknowledgement")
        taken.requests += 1
        taken.bytes += size
        return size

    async def _read(self, receive: Receive) -> bytes:
        most, parts, size = self._limits.max_body_bytes, [], 0
        try:
            async with asyncio.timeout(self._limits.body_timeout_s):
                more = True
                while more:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise Refusal(HTTPStatus.BAD_REQUEST, "the client disconnected")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise _too_large(most)
                    more = message.get("more_body", False)
        except TimeoutError as error:
            raise Refusal(HTTPStatus.REQUEST_TIMEOUT, "the body did not arrive in time") from error
        return b"".join(parts)


def _too_large(most: int) -> Refusal:
    # The rest of the body is not read, so the connection cannot be reused.
    return Refusal(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {most} bytes", headers={"Connection": "close"}
    )


def _replayed(body: bytes, receive: Receive) -> Receive:
    left = [body]

    async def replay() -> Message:
        return {"type": "http.request", "body": left.pop(), "more_body": False} if left else await receive()

    return replay
