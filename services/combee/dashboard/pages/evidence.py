"""An entry with the reflections that taught it and their runs."""

from nicegui import ui

from combee.adapters.ports import FatalError, TransientError
from combee.core.names.sources import name_text, source_text
from combee.core.text.redact import redacted
from combee.dashboard.views.wording import moment
from combee.gateway.context import Context
from combee.log.inspection.lineage import Lineage, Source, lineage
from combee_schemas.playbook import Entry

MAX_SOURCES = 20
SHORT = 160


async def open_evidence(context: Context, playbook: str, entry: Entry) -> None:
    """Open a dialog, which shows progress while the log is read."""
    with ui.dialog().props('aria-label="Evidence"') as dialog, ui.card().classes("w-full max-w-3xl"):
        ui.button(icon="close", on_click=dialog.close).props('flat round dense aria-label="Close"').classes(
            "close"
        )
        ui.label(entry.content).classes("words head")
        ui.label(f"{playbook} · {entry.id}").classes("quiet")
        body = ui.element("div").classes("w-full told")
        with body:
            ui.spinner()
            status = ui.label("reading the log …").classes("quiet")
    dialog.on("hide", dialog.delete)
    dialog.open()

    def progress(topic: str, read: int, total: int) -> None:
        status.text = f"reading {topic}: {read:,} of {total:,}"

    try:
        origins = await lineage(context.log, playbook, entry.id, traces=True, on_progress=progress)
    except (FatalError, TransientError) as error:
        status.text = str(error)
        return
    if dialog.is_deleted:
        return  # closed while the log was read
    body.clear()
    with body:
        _lineage(origins)


def _lineage(origins: Lineage) -> None:
    for version, change in origins.changes:
        words = f"{moment(version.created_at_ms)}  version {version.version}: {change.kind} {change.detail}"
        ui.label(redacted(words)).classes("quiet words")
    if not origins.sources:
        ui.label("No reflection: it was imported or edited by hand.")
    for source in origins.sources[-MAX_SOURCES:]:
        _source(source)
    if len(origins.sources) > MAX_SOURCES:
        ui.label(f"… and {len(origins.sources) - MAX_SOURCES} older ones; 'combee why' lists all").classes(
            "quiet"
        )


def _source(source: Source) -> None:
    batch = f" · batch {source.sequence}" if source.sequence is not None else ""
    batch += f" · {redacted(source_text(source.taught_by))}" if source.taught_by else ""
    reflection, trace = source.reflection, source.trace
    said = reflection.key_insight or reflection.reasoning if reflection else "no longer in the log"
    headline = redacted(said)[:SHORT]
    with (
        ui.expansion(headline, caption=f"{name_text(source.reflection_id)}{batch}")
        .classes("w-full")
        .props("dense")
    ):
        if reflection is None:
            ui.label("The reflection is no longer in the log.").classes("quiet")
            return
        parts = {
            "insight": reflection.key_insight,
            "error": reflection.error_identification,
            "root cause": reflection.root_cause_analysis,
            "right approach": reflection.correct_approach,
            "task": trace.task if trace else "",
            "answer": trace.answer if trace else "",
            "feedback": trace.feedback if trace else "",
        }
        with ui.element("div").classes("facts"):
            for name, text in parts.items():
                if text:
                    ui.label(name).classes("quiet")
                    ui.label(redacted(text)).classes("words")
        if trace is None:
            ui.label("The run itself is not in the log.").classes("quiet")
