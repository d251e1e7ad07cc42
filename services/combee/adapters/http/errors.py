"""HTTP's errors become one of the three kinds, with the cause kept."""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

import httpx
from pydantic import ValidationError

from combee.adapters.ports import FatalError, PoisonError, TransientError
from combee_schemas.base import Value

BUSY = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.MISDIRECTED_REQUEST)
MAX_DETAIL = 1_000


class _Wrong(Value):
    detail: str = ""


class _Problem(Value):
    """The fields of problem details (RFC 9457) that are used."""

    detail: str = ""
    errors: tuple[_Wrong, ...] = ()


class AbsentError(PoisonError):
    """The resource does not exist, or this key may not see it."""


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn httpx's errors into ours; ``doing`` starts the message."""
    try:
        yield
    except httpx.HTTPError as error:
        raise TransientError(f"{doing}: {type(error).__name__}: {error}") from error
    except httpx.InvalidURL as error:
        raise FatalError(f"{doing}: the gateway's address is not a URL: {error}") from error


def check(response: httpx.Response, doing: str) -> None:
    """Raise for a refusal: transient (busy, broken), fatal (key, address), or poison (this message).

    Raises
    ------
    TransientError, FatalError, PoisonError
        By status.
    """
    status = response.status_code
    if status < HTTPStatus.MULTIPLE_CHOICES:
        return
    complaint = f"{doing}: the gateway answers {status} {response.reason_phrase}{_detail(response)}"
    if status < HTTPStatus.BAD_REQUEST:  # a proxy's, for example to its login
        raise FatalError(f"{complaint}; give the gateway's own address, no redirect is followed")
    if status in BUSY or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise TransientError(complaint)
    if status in REFUSED:
        raise FatalError(f"{complaint}; check the address, the API key and its scopes (COMBEE_GATEWAY_KEY)")
    if status == HTTPStatus.NOT_FOUND:
        raise AbsentError(complaint)
    raise PoisonError(complaint)


def _detail(response: httpx.Response) -> str:
    """Return the gateway's reason for a refusal, the first of several; empty if it gives none."""
    try:
        problem = _Problem.model_validate_json(response.content)
    except (ValidationError, httpx.ResponseNotRead):
        return ""
    details = (problem.detail, *(wrong.detail for wrong in problem.errors[:1]))
    text = ": ".join(" ".join(detail.split()) for detail in details if detail)
    # A terminal shows it.
    text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:MAX_DETAIL])
    return f": {text}" if text else ""
