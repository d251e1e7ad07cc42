"""Where the dashboard meets the gateway: one page, whose parts follow the address."""

from collections.abc import Callable

from fastapi import FastAPI
from nicegui import ui
from starlette.responses import RedirectResponse

from combee.dashboard.frame import frame
from combee.gateway.context import Context

PATH = "/dashboard"


def mount(app: FastAPI, context: Context) -> None:
    """Serve the dashboard under ``/dashboard``; ``/`` leads there. Who may see it, the gateway decides."""

    def root() -> None:
        frame(context)

    app.add_api_route("/", _go_there, include_in_schema=False)
    run_with: Callable[..., None] = ui.run_with
    run_with(
        app,
        root=root,
        title="Combee",
        mount_path=PATH,
        dark=None,
        favicon="🐝",
        language="en-US",
        show_welcome_message=False,
        reconnect_timeout=10.0,
    )


def _go_there() -> RedirectResponse:
    return RedirectResponse(f"{PATH}/")
