"""Errors as RFC 9457 problem details: refusals raised on purpose, and what became of all others."""

import math
from collections.abc import Mapping
from http import HTTPStatus
from itertools import islice
from typing import Any, get_type_hints

import structlog
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException

from combee.adapters.ports import CombeeError, TransientError
from combee.core.formats.intake import Unknown, unknown_fields
from combee.core.text.redact import redacted

logger = structlog.get_logger()

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 1
MOST_ERRORS = 20
MOST_PLACE = 100
"""Of a longer place only the beginning is told."""


class Wrong(BaseModel):
    """One thing that is wrong with a request; what was sent is never repeated."""

    model_config = ConfigDict(frozen=True)

    where: str
    detail: str


class Problem(BaseModel):
    """Problem details (RFC 9457)."""

    model_config = ConfigDict(frozen=True)

    type: str = Field("about:blank", description="`about:blank`: the title says it all")
    title: str
    status: int = Field(ge=400, le=599)
    detail: str = ""
    errors: tuple[Wrong, ...] = ()
    waiting: int = Field(
        0, ge=0, description="reflections that wait in the window of what does not exist yet"
    )
    until_ms: int | None = Field(None, description="when that window closes at the latest")


class Refusal(HTTPException):
    """A request that is refused, and why; raised by endpoints, or given to a client by ``answer``."""

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        *,
        errors: tuple[Wrong, ...] = (),
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.problem = Problem(title=status.phrase, status=status, detail=detail, errors=errors, **more)

    def with_headers(self, headers: Mapping[str, str]) -> "Refusal":
        """Return it with more headers."""
        self.headers = {**(self.headers or {}), **headers}
        return self

    def answer(self) -> Response:
        """Return it as a response."""
        return _response(self.problem, self.headers)


def busy(
    detail: str, *, retry_after_s: float = RETRY_AFTER_S, headers: Mapping[str, str] | None = None
) -> Refusal:
    """Return the refusal of a client that should come again later."""
    all_headers = {"Retry-After": str(math.ceil(retry_after_s)), **(headers or {})}
    return Refusal(HTTPStatus.TOO_MANY_REQUESTS, detail, headers=all_headers)


def unavailable(detail: str) -> Refusal:
    """Return the refusal of a gateway that cannot do it right now."""
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers={"Retry-After": str(RETRY_AFTER_S)})


def not_found(detail: str) -> Refusal:
    """Return the refusal for what does not exist, or is not this caller's to see."""
    return Refusal(HTTPStatus.NOT_FOUND, detail)


def invalid(what: str, errors: tuple[Wrong, ...]) -> Refusal:
    """Return the refusal of what is not as described; the detail names the first thing that is wrong."""
    first = f": {errors[0].where}: {errors[0].detail}" if errors else ""
    return Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, f"{what}{first}", errors=errors)


def wrongs(
    error: ValidationError | RequestValidationError, kind: type[BaseModel] | None = None
) -> tuple[Wrong, ...]:
    """Return what a validation found, without what was sent; ``kind`` is what the fields belong to."""
    errors = error.errors()[:MOST_ERRORS]
    return tuple(_wrong(detail["loc"], _advice(detail, kind)) for detail in errors)


def unknowns(
    kind: type[BaseModel], given: Mapping[str, Any], *, are_compared: bool = True
) -> tuple[Wrong, ...]:
    """Return the fields that ``kind`` does not have."""
    unknown = islice(unknown_fields(kind, given, are_compared=are_compared), MOST_ERRORS)
    return tuple(_wrong((field.place,), field.advice) for field in unknown)


def _wrong(place: tuple[int | str, ...], detail: str) -> Wrong:
    return Wrong(where=redacted(".".join(map(str, place)))[:MOST_PLACE], detail=detail)


def _advice(error: Mapping[str, Any], kind: type[BaseModel] | None) -> str:
    if error["type"] == "extra_forbidden" and kind is not None:
        return Unknown.named(str(error["loc"][-1]), kind.model_fields).advice
    return str(error["msg"])


def _response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    body = problem.model_dump_json(exclude_defaults=True)
    return Response(body, problem.status, dict(headers or {}), media_type=MEDIA_TYPE)


# ---- handlers


async def _http(_: Request, error: Exception) -> Response:
    if isinstance(error, Refusal):
        return error.answer()
    assert isinstance(error, StarletteHTTPException)  # noqa: S101 - that is what it is registered for
    status = HTTPStatus(error.status_code)
    detail = error.detail if error.detail != status.phrase else ""
    return _response(Problem(title=status.phrase, status=status, detail=detail), error.headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - that is what it is registered for
    body = get_type_hints(request.scope["endpoint"]).get("body")
    return invalid("the request is not as the OpenAPI document says", wrongs(error, body)).answer()


async def _failed(_: Request, error: Exception) -> Response:
    if isinstance(error, TransientError | TimeoutError):
        return unavailable(
            "Kafka does not answer right now; what is sent again with its id counts once"
        ).answer()
    logger.error("request_failed", error=f"{type(error).__name__}: {error}")
    return Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "it is in the gateway's log").answer()


HANDLERS: Mapping[Any, Any] = {
    StarletteHTTPException: _http,
    RequestValidationError: _invalid,
    CombeeError: _failed,
    TimeoutError: _failed,
    Exception: _failed,
}


def add_handlers(app: FastAPI) -> None:
    """Answer every error of the app with a problem."""
    for kind, handler in HANDLERS.items():
        app.add_exception_handler(kind, handler)


# ---- as the OpenAPI document says it

STATUS_TEXT: Mapping[int, str] = {
    400: "It is well-formed and cannot be done",
    401: "No key was given, or none that is known",
    403: "The key has not the scope, or not this name space",
    404: "There is no such thing, or it is not this key's to see",
    408: "The body did not arrive in time",
    409: "It cannot be done with what there is",
    413: "The body is too large",
    415: "The body is not application/json",
    421: "Asked under a name that is not this machine's",
    422: "The request is not as this document says",
    429: "Too much at once of this key or for its tenant, or too many wrong keys: come again after Retry-After"
    " seconds",
    500: "A fault of the gateway",
    503: "Kafka does not answer right now, or the gateway has just started: come again after Retry-After seconds",
}
ALWAYS = (401, 403, 421, 422, 429, 500, 503)
BODY = (408, 413)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI responses of the errors an endpoint has, those that all have among them."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {"description": STATUS_TEXT[status], "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in sorted({*ALWAYS, *statuses})
    }
