"""Playbook names in paths: ``support/refunds``, with plain or encoded slashes."""

import re
from typing import Annotated
from urllib.parse import unquote

from fastapi import Path
from starlette.convertors import Convertor, register_url_convertor
from starlette.types import ASGIApp, Receive, Scope, Send

from combee_schemas.base import LineName

ENDINGS = (
    "adopt",
    "approve",
    "branch",
    "candidate",
    "consolidate",
    "delete",
    "diff",
    "edit",
    "events",
    "flush",
    "import",
    "keep",
    "outcomes",
    "pause",
    "promote",
    "reject",
    "resume",
    "revoke",
    "rollback",
    "versions",
)
"""Path segments that may follow a name; a name that ends with one of them needs encoded slashes."""
BELOW = "/v1/playbooks/"
SLASH = re.compile("%2F", re.IGNORECASE)

Name = Annotated[
    LineName,
    Path(
        description="such as `support/refunds`, or a branch of it: `support/refunds@exp`; slashes may be encoded as"
        " `%2F`"
    ),
]


class EncodedSlashes:
    """ASGI middleware: encoded slashes stay encoded until the route is found."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        raw = scope.get("raw_path") or b""
        if (
            scope["type"] == "http"
            and scope["path"].startswith(BELOW)
            and SLASH.search(raw.decode("latin-1"))
        ):
            path = unquote(SLASH.sub("%252F", raw.decode("latin-1").partition("?")[0]))
            scope = {**scope, "path": path}
        await self._app(scope, receive, send)


class _Name(Convertor[str]):
    regex = ".+"

    def convert(self, value: str) -> str:
        return SLASH.sub("/", value)

    def to_string(self, value: str) -> str:
        return SLASH.sub("%2F", value)


class _WholeName(_Name):
    """A name at the end of a path."""

    regex = rf"(?!.*/(?:{'|'.join(ENDINGS)})$).+"


def register() -> None:
    """Register ``{name:playbook}`` (a segment follows) and ``{name:whole}`` for routes."""
    register_url_convertor("playbook", _Name())
    register_url_convertor("whole", _WholeName())
