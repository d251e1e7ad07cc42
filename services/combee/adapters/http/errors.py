"""HTTP's errors become one of the three kinds, with the cause kept."""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

import httpx

from combee.ports import FatalError, PoisonError, TransientError

BUSY = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.MISDIRECTED_REQUEST)


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn httpx's errors into ours; ``doing`` starts the message."""
    try:
        yield
    except httpx.HTTPError as error:
        raise TransientError(f"{doing}: {type(error).__name__}: {error}") from error
    except httpx.InvalidURL as error:
        raise FatalError(f"{doing}: the gateway's address is no URL: {error}") from error


def check(response: httpx.Response, doing: str) -> None:
    """Raise for a refusal: busy or broken servers heal, keys and addresses need somebody, the rest is this message.

    Raises
    ------
    TransientError, FatalError, PoisonError
        By status.
    """
    status = response.status_code
    if status < HTTPStatus.BAD_REQUEST:
        return
    complaint = f"{doing}: the gateway answers {status} {response.reason_phrase}"
    if status in BUSY or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise TransientError(complaint)
    if status in REFUSED:
        raise FatalError(f"{complaint}; check the address, the API key and its scopes (COMBEE_GATEWAY_KEY)")
    raise PoisonError(complaint)
