"""Browser sessions for the dashboard: a one-time link, made with a key, becomes a session in a cookie.

The link's token is its fragment, which browsers do not send, so no log of a server or a proxy contains it.
"""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, ConfigDict, Field

from combee.gateway.access.access import COMMANDS, DASHBOARD, allowed
from combee.gateway.access.keys import Caller
from combee.gateway.access.sessions import COOKIE, SESSION_MS
from combee.gateway.context import Context
from combee.gateway.endpoints.commands import from_its_own_page
from combee.gateway.problems import Refusal

LINKS, SESSIONS, OPEN = "/v1/session-links", "/v1/sessions", "/open"
PAGE = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Combee</title>
<link rel="icon" href="data:,">
<p id="said" role="status">Opening the dashboard …</p>
<script>
const token = location.hash.slice(1);
history.replaceState(null, "", location.pathname);
fetch("{SESSIONS}", {{
  method: "POST",
  headers: {{"Content-Type": "application/json"}},
  body: JSON.stringify({{token}}),
}}).then(async (answer) => {{
  if (answer.ok) location.replace("{DASHBOARD}/");
  else document.getElementById("said").textContent = (await answer.json()).detail;
}});
</script></html>
"""


class Link(BaseModel):
    """A one-time link."""

    path: str


class Token(BaseModel):
    """The token of a link."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    token: str = Field(max_length=200)


def router(context: Context) -> APIRouter:
    """Return the endpoints; they are internal to the dashboard, so the OpenAPI document omits them."""
    routes = APIRouter(include_in_schema=False)
    guards = [Depends(from_its_own_page(context))]

    @routes.post(LINKS, dependencies=guards)
    async def link(caller: Annotated[Caller, Depends(allowed(COMMANDS))]) -> Link:
        if not caller.has_key:
            raise Refusal(HTTPStatus.FORBIDDEN, f"a key with the scope {COMMANDS} is needed")
        return Link(path=f"{OPEN}#{context.sessions.link(caller, context.clock.now_ms())}")

    @routes.post(SESSIONS, dependencies=guards, status_code=HTTPStatus.NO_CONTENT)
    async def session(request: Request, body: Token, response: Response) -> None:
        opened = context.sessions.open(body.token, context.clock.now_ms())
        if opened is None:
            raise Refusal(
                HTTPStatus.FORBIDDEN,
                "This link was opened before, or is too old: open the dashboard and give the key as the password.",
            )
        response.set_cookie(
            COOKIE,
            opened,
            max_age=SESSION_MS // 1000,
            path=DASHBOARD,
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )

    @routes.get(OPEN)
    async def page() -> HTMLResponse:
        return HTMLResponse(PAGE, headers={"Cache-Control": "no-store"})

    return routes
