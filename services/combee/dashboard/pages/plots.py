"""Learning over time: batch size with its reason, retention, cost."""

from nicegui import ui

from combee.core.log.live.values import LivePlaybook
from combee.dashboard.pieces import chart, draw, following, heading, unreadable
from combee.dashboard.views import charts
from combee.dashboard.views.wording import moment
from combee.gateway.context import Context
from combee.log.reports.controller import why_text
from combee_schemas import topics

PLOTS = {
    "Reflections in a batch": charts.batch_sizes,
    "What became of the reflections": charts.retention,
    "Cost of a batch": charts.cost,
}


def page(context: Context, playbook: str = "") -> None:
    """Build the page of one playbook; without a name, of the one that changed last."""
    heading("Learning")
    unreadable(context, topics.HISTORY, topics.BATCH_SIZES)
    select = ui.select([], label="Playbook", value=None, with_input=True).classes("w-64")
    nothing = ui.label("Nothing yet: a playbook is here once it has a version.").classes("quiet")
    reason = ui.label().classes("quiet")
    drawn: dict[str, ui.echart] = {}
    with ui.element("div").classes("plots") as every:
        for name, plot in PLOTS.items():
            with ui.element("div"):
                heading(name, 2)
                drawn[name] = chart(f"{name} over time")
                drawn[name].options.update(plot(LivePlaybook(name="-")))
    with ui.element("section") as decided:
        heading("Decisions of the controller", 2)
        decisions = ui.column().classes("w-full gap-1")
    lines_shown: list[str] = []

    def show() -> None:
        known = {playbook.name: playbook for playbook in context.live.shared().playbooks}
        if list(known) != select.options:
            select.set_options(
                list(known),
                value=select.value or (playbook if playbook in known else next(iter(known), None)),
            )
        chosen = known.get(str(select.value))
        nothing.set_visibility(not known)
        for part in (select, reason, every, decided):
            part.set_visibility(chosen is not None)
        if chosen is None:
            return
        why = why_text(chosen.branch, chosen.batch_size_reason)
        reason.text = f"Batch size {chosen.batch_size}: {why}"
        for name, plot in PLOTS.items():
            draw(drawn[name], plot(chosen))
        lines = [f"{moment(size.at_ms)}  {size.batch_size}: {size.reason}" for size in reversed(chosen.sizes)]
        if lines != lines_shown:
            lines_shown[:] = lines
            decisions.clear()
            with decisions:
                for line in lines:
                    ui.label(line).classes("words")
        decided.set_visibility(bool(lines))

    select.on_value_change(show)
    following(context, show)
