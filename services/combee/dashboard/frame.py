"""The frame of every page: navigation, theme, shortcuts; and which page belongs to which address."""

from collections.abc import Callable

from nicegui import events, ui

from combee.dashboard import batches, dead_letters, flow, playbooks, plots
from combee.dashboard.look import CSS
from combee.gateway.context import Context

PAGES = (
    ("f", "Flow", "/"),
    ("b", "Batches", "/batches"),
    ("p", "Playbooks", "/playbooks"),
    ("l", "Learning", "/learning"),
    ("d", "Dead letters", "/dead-letters"),
)
"""Key, name, address."""
SIMULATED = "simulated"
THEMES = ((None, "brightness_auto", "automatic"), (True, "dark_mode", "dark"), (False, "light_mode", "light"))


def frame(context: Context) -> None:
    """Build one browser's frame, and the page it asked for."""
    ui.add_css(CSS)
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
        turn = _theme()
    _shortcuts(turn)
    with ui.element("div").classes("page") as content:
        ui.sub_pages(
            {
                "/": lambda: flow.page(context),
                "/batches": lambda: batches.page(context),
                "/batches/{batch_id}": lambda batch_id: batches.page(context, batch_id),
                "/playbooks": lambda: playbooks.overview(context),
                "/playbook": lambda name="", version="": playbooks.page(context, name, version),
                "/learning": lambda playbook="": plots.page(context, playbook),
                "/dead-letters": lambda: dead_letters.page(context),
            }
        )
    ui.skip_link("Skip to the content", target=content)

    def arrived(path: str) -> None:
        for known, link in links.items():
            link.props('aria-current="page"' if known == section(path) else "", remove="aria-current")

    router = ui.context.client.sub_pages_router
    router.on_path_changed(arrived)
    arrived(router.current_path)


def section(path: str) -> str:
    """Return the page of the navigation that an address belongs to."""
    first = "/" + path.partition("?")[0].strip("/").partition("/")[0]
    return "/playbooks" if first == "/playbook" else first


def _theme() -> Callable[[], None]:
    """Add the button that turns automatic → dark → light; return what it does."""
    dark = ui.dark_mode(None)

    def turn() -> None:
        position = [value for value, _, _ in THEMES].index(dark.value)
        dark.value, icon, name = THEMES[(position + 1) % len(THEMES)]
        button.props(f'icon={icon} aria-label="Theme: {name}"')

    _, icon, name = THEMES[0]
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
