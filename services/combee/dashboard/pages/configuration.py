"""The settings in force in this process, and where each comes from; no secret is shown."""

from nicegui import ui

from combee.dashboard.pieces import fill, heading, table
from combee.dashboard.views.rows import setting_rows
from combee.gateway.context import Context

COLUMNS = {
    "name": "setting",
    "value": "value",
    "origin": "comes from",
    "about": "meaning",
}


def page(context: Context) -> None:
    """Build the page."""
    heading("Configuration")
    ui.label(
        "What the gateway runs with. 'combee up' gives all services the same; elsewhere each process has its own."
    ).classes("quiet")
    with ui.element("div").classes("tools"):
        wanted = ui.input("Find a setting").props("type=search clearable debounce=200 outlined dense")
        wanted.classes("w-64")
        only = ui.switch("Only what is not the default")
    rows = table(COLUMNS, key="name", label="Settings in force", most=0)

    def show() -> None:
        fill(rows, setting_rows(context.settings, str(wanted.value or ""), only_set=bool(only.value)))

    wanted.on_value_change(show)
    only.on_value_change(show)
    show()
