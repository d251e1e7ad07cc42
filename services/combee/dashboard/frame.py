"""The frame of every page: navigation, theme, shortcuts, and the routes of the pages."""

from collections.abc import Callable
from http import HTTPStatus

from fastapi import FastAPI
from nicegui import events, ui

from combee.dashboard.admin import Admin
from combee.dashboard.look import CSS, LOST
from combee.dashboard.pages import (
    batches,
    configuration,
    dead_letters,
    flow,
    playbook,
    playbooks,
    plots,
    search,
    start,
)
from combee.dashboard.pieces import heading
from combee.dashboard.views.addresses import PAGES, is_page, section
from combee.dashboard.views.wording import moment
from combee.gateway.context import Context

SIMULATED = "simulated"
THEME = "combee-theme"
"""Name of the cookie that stores the theme."""
THEMES = ((None, "brightness_auto", "automatic"), (True, "dark_mode", "dark"), (False, "light_mode", "light"))


def application(context: Context) -> FastAPI:
    """Return the dashboard, a single page whose content follows the address."""
    app = FastAPI(openapi_url=None)
    run_with: Callable[..., None] = ui.run_with
    run_with(
        app,
        root=lambda: frame(context),
        title="Combee",
        dark=None,
        favicon="🐝",
        language="en-US",
        show_welcome_message=False,
        reconnect_timeout=10.0,
    )
    return app


def frame(context: Context) -> None:
    """Build one browser's frame, and the requested page."""
    ui.add_css(CSS)
    ui.add_body_html(LOST)
    links = {}
    with ui.header().classes("bar"), ui.element("nav").classes("links").props('aria-label="Pages"'):
        with ui.element("div").classes("brand"):
            ui.icon("hive")
            ui.label("Combee")
            if context.settings.model.model == SIMULATED:
                ui.label("simulated").classes("badge").tooltip("the answers come from the stand-in model")
        for key, name, path in PAGES:
            links[path] = ui.link(name, path).classes("nav").props(f'aria-keyshortcuts="{key}"')
            links[path].tooltip(f"shortcut: {key}")
        ui.space()
        admin = Admin(context)
        turn = _theme()
    _shortcuts(turn)
    _stale(context)
    with ui.element("div").classes("page") as content:
        pages = ui.sub_pages(
            {
                "/": lambda: start.page(context),
                "/flow": lambda: flow.page(context),
                "/batches": lambda: batches.page(context),
                "/batches/{batch_id}": lambda batch_id: batches.page(context, batch_id),
                "/playbooks": lambda: playbooks.page(context),
                "/playbook": lambda name="", version="", entry="", changed="": playbook.page(
                    context, admin, name, version, entry, only_changed=bool(changed)
                ),
                "/search": lambda text="": search.page(context, text),
                "/learning": lambda playbook="": plots.page(context, playbook),
                "/dead-letters": lambda: dead_letters.page(context, admin),
                "/configuration": lambda: configuration.page(context),
            },
            show_404=False,  # it would log every wrong address as an error
        )
        with ui.element("div") as missing:
            heading("There is no such page")
            ui.link("To the overview", "/")
    ui.skip_link("Skip to the content", target=content)

    def arrived(path: str) -> None:
        pages.set_visibility(is_page(path))
        missing.set_visibility(not is_page(path))
        for known, link in links.items():
            link.props('aria-current="page"' if known == section(path) else "", remove="aria-current")

    router = ui.context.client.sub_pages_router
    router.on_path_changed(arrived)
    arrived(router.current_path)
    if not is_page(router.current_path):
        ui.context.client.status_code = HTTPStatus.NOT_FOUND


def _stale(context: Context) -> None:
    """Warn above the page that Kafka has not answered since a time, and that the figures are from then."""
    alert = ui.label().classes("stale").props("role=alert")

    def look() -> None:
        since_ms = context.live.unanswered_since_ms
        alert.text = f"Kafka has not answered since {moment(since_ms)} UTC: the figures are from then."
        alert.set_visibility(since_ms is not None)

    look()
    ui.timer(1.0, look)


def _theme() -> Callable[[], None]:
    """Add the button that switches automatic → dark → light, stored in a cookie; return its handler."""
    request = ui.context.client.request
    remembered = request.cookies.get(THEME) if request is not None else None
    position = next((at for at, (_, _, name) in enumerate(THEMES) if name == remembered), 0)
    dark = ui.dark_mode(THEMES[position][0])

    def turn() -> None:
        nonlocal position
        position = (position + 1) % len(THEMES)
        dark.value, icon, name = THEMES[position]
        button.props(f'icon={icon} aria-label="Theme: {name}"')
        ui.run_javascript(f"document.cookie = '{THEME}={name}; path=/; max-age=31536000; SameSite=Lax'")

    _, icon, name = THEMES[position]
    button = ui.button(icon=icon, on_click=turn, color=None).props(
        f'flat round dense aria-label="Theme: {name}"'
    )
    button.classes("corner").tooltip("automatic, dark, light; shortcut: t")
    return turn


def _shortcuts(turn: Callable[[], None]) -> None:
    def pressed(event: events.KeyEventArguments) -> None:
        if not event.action.keydown or event.modifiers.ctrl or event.modifiers.meta or event.modifiers.alt:
            return
        if event.key == "t":
            turn()
        for key, _, path in PAGES:
            if event.key == key:
                ui.navigate.to(path)

    ui.keyboard(on_key=pressed)
