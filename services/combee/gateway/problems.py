"""Errors as RFC 9457 problem details: refusals raised on purpose, and all other errors."""

import math
from collections.abc import Mapping
from http import HTTPStatus
from itertools import islice
from typing import Annotated, Any, get_type_hints

import structlog
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException

from combee.adapters.ports import CombeeError, TransientError
from combee.core.formats.intake import Unknown, unknown_fields
from combee.core.text.forms import writable
from combee.core.text.redact import redacted

logger = structlog.get_logger()

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 1
MAX_ERRORS = 20
MAX_NAMED = 200
"""Maximum number of errors in one object that are looked at one by one: a body may have millions."""
MAX_PLACE = 100
"""Maximum length of a field's path in an error."""


Told = Annotated[str, AfterValidator(writable)]
"""A text that may quote a request, in which halves of surrogate pairs may stand."""


class Wrong(BaseModel):
    """One error in a request, without the sent values."""

    model_config = ConfigDict(frozen=True)

    where: Told
    detail: Told


class Problem(BaseModel):
    """Problem details (RFC 9457)."""

    model_config = ConfigDict(frozen=True)

    type: str = Field("about:blank", description="`about:blank`: the title says it all")
    title: str
    status: int = Field(ge=400, le=599)
    detail: Told = ""
    errors: tuple[Wrong, ...] = ()
    waiting: int = Field(
        0, ge=0, description="number of reflections waiting in the window of a playbook without a version"
    )
    until_ms: int | None = Field(None, description="when that window closes at the latest")


class Refusal(HTTPException):
    """A refused request and the reason; raised by endpoints, or returned as a response by ``answer``."""

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
        """Return the refusal with more headers."""
        self.headers = {**(self.headers or {}), **headers}
        return self

    def answer(self) -> Response:
        """Return the refusal as a response."""
        return _response(self.problem, self.headers)


def busy(
    detail: str, *, retry_after_s: float = RETRY_AFTER_S, headers: Mapping[str, str] | None = None
) -> Refusal:
    """Return the refusal for a client that should retry later."""
    all_headers = {"Retry-After": str(math.ceil(retry_after_s)), **(headers or {})}
    return Refusal(HTTPStatus.TOO_MANY_REQUESTS, detail, headers=all_headers)


def unavailable(detail: str) -> Refusal:
    """Return the refusal of a gateway that is temporarily unavailable."""
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers={"Retry-After": str(RETRY_AFTER_S)})


def not_found(detail: str) -> Refusal:
    """Return the refusal for a resource that is missing or hidden from the caller."""
    return Refusal(HTTPStatus.NOT_FOUND, detail)


def invalid(what: str, errors: tuple[Wrong, ...]) -> Refusal:
    """Return the refusal for invalid input; the detail names the first error."""
    first = f": {errors[0].where}: {errors[0].detail}" if errors else ""
    return Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, f"{what}{first}", errors=errors)


def wrongs(
    error: ValidationError | RequestValidationError, kind: type[BaseModel] | None = None
) -> tuple[Wrong, ...]:
    """Return a validation's errors without the sent values; ``kind`` is the model that has the fields."""
    if isinstance(error, ValidationError) and error.error_count() > MAX_NAMED:
        return (_wrong((error.title,), f"{error.error_count()} values are wrong, too many to name"),)
    errors = error.errors()[:MAX_ERRORS]
    return tuple(_wrong(detail["loc"], _advice(detail, kind)) for detail in errors)


def unknowns(
    kind: type[BaseModel], given: Mapping[str, Any], *, are_compared: bool = True
) -> tuple[Wrong, ...]:
    """Return the unknown fields as errors."""
    unknown = islice(unknown_fields(kind, given, are_compared=are_compared), MAX_ERRORS)
    return tuple(_wrong((field.place,), field.advice) for field in unknown)


def _wrong(place: tuple[int | str, ...], detail: str) -> Wrong:
    return Wrong(where=redacted(".".join(map(str, place)))[:MAX_PLACE], detail=detail)


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
    assert isinstance(error, StarletteHTTPException)  # noqa: S101 - it is registered for this type
    status = HTTPStatus(error.status_code)
    detail = error.detail if error.detail != status.phrase else ""
    return _response(Problem(title=status.phrase, status=status, detail=detail), error.headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - it is registered for this type
    body = get_type_hints(request.scope["endpoint"]).get("body")
    return invalid("the request does not match the OpenAPI document", wrongs(error, body)).answer()


async def _failed(_: Request, error: Exception) -> Response:
    if isinstance(error, TransientError | TimeoutError):
        return unavailable("Kafka is unavailable right now; a repeat with the same id counts once").answer()
    logger.error("request_failed", error=f"{type(error).__name__}: {error}")
    return Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "the gateway's log has the error").answer()


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


# ---- descriptions in the OpenAPI document

STATUS_TEXT: Mapping[int, str] = {
    400: "The request is well-formed but cannot be carried out",
    401: "The key is missing or unknown",
    403: "The key lacks the scope or the name space",
    404: "The resource is missing or hidden from this key",
    408: "The body did not arrive in time",
    409: "The request conflicts with the present state",
    413: "The body is too large",
    415: "The body is not application/json",
    421: "The request's host name is not this machine's",
    422: "The request does not match this document",
    429: "Too many requests of this key or its tenant, or too many wrong keys: retry after Retry-After"
    " seconds",
    500: "A fault of the gateway",
    503: "Kafka is unavailable right now, or the gateway has just started: retry after Retry-After seconds",
}
ALWAYS = (401, 403, 421, 422, 429, 500, 503)
BODY = (408, 413)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI responses of an endpoint's errors, with those common to all endpoints."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {"description": STATUS_TEXT[status], "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in sorted({*ALWAYS, *statuses})
    }
