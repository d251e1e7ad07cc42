"""HTTP around the stand-in: the three OpenAI paths and the loopback admin paths."""

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable
from http import HTTPStatus
from typing import Any, Literal

from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from combee_sim.embeddings import EMBEDDING, embeddings
from combee_sim.roles.reading import NotAChatError
from combee_sim.roles.respond import MODEL
from combee_sim.server.faults import fault_rates
from combee_sim.server.standin import Call, Outcome, StandIn
from combee_sim.server.wire import as_bytes, chunks, completion, error, models

TRANSPORT = "combee.transport"
Waited = Literal["elapsed", "gone", "stopping"]


class Web:
    """The ASGI application of one stand-in."""

    def __init__(self, stand_in: StandIn, stopping: asyncio.Event) -> None:
        self._stand_in = stand_in
        self._stopping = stopping

    def app(self) -> ASGIApp:
        """Return the application."""
        api = FastAPI(title="Combee's simulated model", openapi_url=None)
        api.add_api_route("/v1/chat/completions", self.chat, methods=["POST"])
        api.add_api_route("/v1/embeddings", self.embed, methods=["POST"])
        api.add_api_route("/v1/models", self.list_models, methods=["GET"])
        api.add_api_route("/sim/faults", self.set_faults, methods=["POST"])
        api.add_api_route("/sim/stats", self.stats, methods=["GET"])
        return with_transport(api)

    async def chat(self, request: Request) -> Response:
        """Answer one chat request, or fail as configured."""
        try:
            body = _object(await request.body())
            _refuse_unknown(body, MODEL)
            call = self._stand_in.begin(body)
        except NotAChatError as wrong:
            return _reply(HTTPStatus.BAD_REQUEST, error(str(wrong), "invalid_request_error"))
        except LookupError as wrong:
            return _reply(HTTPStatus.NOT_FOUND, error(str(wrong), "invalid_request_error", "model_not_found"))
        outcome: Outcome = "stopped"
        try:
            outcome = await self._live_through(call, request)
        finally:
            self._stand_in.end(call, outcome)
        return self._answer(call, outcome, body)

    async def _live_through(self, call: Call, request: Request) -> Outcome:
        """Wait for the call's duration; return its result."""
        options = self._stand_in.options
        waited = await self._wait(options.hang_s if call.fate == "hang" else call.delay_s, request)
        if waited == "stopping":
            return "stopped"
        if call.fate in ("hang", "reset"):
            if waited == "elapsed":
                _abort(request)
                await self._wait(1.0, request)
            return call.fate
        return "abandoned" if waited == "gone" else call.fate

    async def _wait(self, seconds: float, request: Request) -> Waited:
        if seconds <= 0:
            return "elapsed"
        gone = asyncio.ensure_future(_disconnected(request))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({gone, stopping}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return "stopping" if stopping.done() else "gone" if gone.done() else "elapsed"
        finally:
            gone.cancel()
            stopping.cancel()

    def _answer(self, call: Call, outcome: Outcome, body: dict[str, Any]) -> Response:
        options = self._stand_in.options
        match outcome:
            case "429":
                return _reply(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    error("too many requests", "rate_limit_error", "rate_limit_exceeded"),
                    {"Retry-After": f"{options.retry_after_s:g}"},
                )
            case "500":
                return _reply(HTTPStatus.INTERNAL_SERVER_ERROR, error("an internal error", "server_error"))
            case "too_long":
                message = f"this model's maximum context length is {options.context_tokens} tokens"
                wrong = error(message, "invalid_request_error", "context_length_exceeded")
                return _reply(HTTPStatus.BAD_REQUEST, wrong)
            case "down" | "stopped" | "hang" | "reset" | "abandoned":
                return _reply(HTTPStatus.SERVICE_UNAVAILABLE, error("the model is down", "server_error"))
        created_s = call.started_ms // 1000
        whole = completion(
            call.answer,
            outcome,
            cached_tokens=call.cached_tokens,
            created_s=created_s,
            huge_bytes=options.huge_bytes,
        )
        if not body.get("stream"):
            return _reply(HTTPStatus.OK, whole)
        asked = body.get("stream_options")
        with_usage = isinstance(asked, dict) and bool(asked.get("include_usage"))
        return StreamingResponse(chunks(whole, with_usage=with_usage), media_type="text/event-stream")

    async def embed(self, request: Request) -> Response:
        """Answer one embeddings request; it also fails while the stand-in is down."""
        try:
            body = _object(await request.body())
            _refuse_unknown(body, EMBEDDING)
            if self._stand_in.is_down:
                return _reply(HTTPStatus.SERVICE_UNAVAILABLE, error("the model is down", "server_error"))
            answer = embeddings(body)
        except ValueError as wrong:
            return _reply(HTTPStatus.BAD_REQUEST, error(str(wrong), "invalid_request_error"))
        except LookupError as wrong:
            return _reply(HTTPStatus.NOT_FOUND, error(str(wrong), "invalid_request_error", "model_not_found"))
        self._stand_in.embedded(len(answer["data"]), answer["usage"]["prompt_tokens"])
        return _reply(HTTPStatus.OK, answer)

    async def list_models(self) -> Response:
        """Return the model, and the one for embeddings."""
        return _reply(HTTPStatus.OK, models())

    async def set_faults(self, request: Request) -> Response:
        """Replace the fault rates; the field ``down_for_s`` makes every call fail for a while."""
        try:
            given = _object(await request.body())
            down_for_s = float(given.pop("down_for_s", 0.0))
            self._stand_in.set_faults(fault_rates(given), down_for_s=down_for_s)
        except (ValueError, TypeError) as wrong:
            return _reply(HTTPStatus.BAD_REQUEST, error(str(wrong), "invalid_request_error"))
        return _reply(HTTPStatus.OK, {"simulated": True, "faults": dict(self._stand_in.faults.rates)})

    async def stats(self) -> Response:
        """Return the counts."""
        return _reply(HTTPStatus.OK, self._stand_in.stats())


def with_transport(app: ASGIApp) -> ASGIApp:
    """Give a handler access to its connection, because ASGI has no way to reset one."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        # uvicorn passes bound methods of its request cycle, which holds the transport.
        cycle = getattr(receive, "__self__", None)
        scope[TRANSPORT] = getattr(cycle, "transport", None)
        await app(scope, receive, send)

    return wrapped


def _abort(request: Request) -> None:
    """Close the connection with RST, which a client sees as a reset."""
    transport = request.scope.get(TRANSPORT)
    if transport is None:
        return
    raw = transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def _disconnected(request: Request) -> Awaitable[Any]:
    # The body has been read, so the next event is the end of the connection.
    return request.receive()


def _object(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as wrong:
        raise NotAChatError("the body is not JSON") from wrong
    if not isinstance(body, dict):
        raise NotAChatError("the body must be a JSON object")
    return body


def _refuse_unknown(body: dict[str, Any], known: str) -> None:
    model = str(body.get("model", ""))
    if model.rpartition("/")[2] != known:
        raise LookupError(f"the model {model!r} does not exist here; the only one is {known!r}")


def _reply(status: HTTPStatus, body: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    return Response(as_bytes(body), status_code=status, headers=headers, media_type="application/json")
