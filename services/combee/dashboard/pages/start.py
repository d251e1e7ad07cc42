"""The first page: does it help, what does it cost, what waits for a person, who may teach, the newest lessons."""

from textwrap import shorten

from nicegui import ui

from combee.adapters.ports import FatalError, TransientError
from combee.core.gate.gate import gates_of
from combee.core.playbook.budget import shown_tokens
from combee.core.playbook.retention import effects_text
from combee.core.text.redact import redacted
from combee.dashboard.pages.evidence import open_evidence
from combee.dashboard.pages.outcomes import Outcomes
from combee.dashboard.pieces import REFRESH_S, Facts, chart, draw, fill, following, heading, table, unreadable
from combee.dashboard.views import charts
from combee.dashboard.views.rows import Figure, figures, waiting_rows
from combee.dashboard.views.wording import address, moment
from combee.gateway import playbooks
from combee.gateway.context import Context
from combee.gateway.playbooks import counted
from combee.log.inspection.lineage import last_taught
from combee.log.reports.cost import by_day, cost_texts, of_lessons
from combee.log.reports.lessons import Learned, newest_lessons
from combee.log.reports.waiting import trust_facts, waiting
from combee_schemas import topics
from combee_schemas.playbook import Entry
from combee_schemas.reflection import Reflection

QUOTED = 2
"""Number of reflections quoted below a lesson."""
SHORT = 200
WAITING = {
    "what": "what",
    "since": "since (UTC)",
    "more": "more",
}
DAYS = 14


def page(context: Context) -> None:
    """Build the page."""
    heading("Overview")
    unreadable(context, topics.PLAYBOOKS, topics.HISTORY)
    tiles = ui.element("nav").classes("tiles").props('aria-label="At a glance"')
    with ui.element("div").classes("halves"):
        Outcomes(context)
        with ui.element("div").classes("told"):
            _cost(context)
            _waiting(context)
            _trust(context)
    heading("Newest lessons", 2)
    lessons = _Lessons(context)
    shown: list[Figure] = []

    def show() -> None:
        now = context.live.shared()
        wanted = figures(now, playbooks.newest_by_name(context).values())
        if wanted != shown:
            shown[:] = wanted
            tiles.clear()
            with tiles:
                for topic in wanted:
                    with ui.link(target=topic.address).classes(f"tile {topic.state}"):
                        ui.label(topic.number).classes("number")
                        ui.label(topic.what)
        lessons.show(newest_lessons(now.playbooks, context.playbooks.latest))

    following(context, show)


def _cost(context: Context) -> None:
    """Add what learning costs: today, before, for a lesson, and in each prompt."""
    section = ui.element("section").props('aria-label="What does it cost?"')
    with section:
        heading("What does it cost?", 2)
        facts = Facts()
        days_drawn = chart("Cost by day").classes("short")
        unpriced = ui.label().classes("quiet")

    def show() -> None:
        now = context.live.shared()
        days = by_day(now.playbooks, now.at_ms)[-DAYS:]
        is_priced = any(day.cost for day in days)
        lessons = of_lessons(now.playbooks, context.playbooks.latest)
        section.set_visibility(any(day.tokens for day in days) or bool(lessons.lessons))
        facts.show(cost_texts(days, lessons, is_priced=is_priced) | _prompts(context))
        model = context.settings.model.model or "MODEL"
        unpriced.text = f'Set the price in combee.toml to see money: [prices."{model}"]'
        unpriced.set_visibility(not is_priced and model not in context.settings.spend.prices)
        days_drawn.set_visibility(sum(bool(day.tokens) for day in days) > 1)
        draw(days_drawn, charts.cost_by_day(days))

    following(context, show)


def _prompts(context: Context) -> dict[str, str]:
    """Return how much longer the largest playbook makes an agent's prompt."""
    sizes = {
        name: sum(shown_tokens(book).values()) for name, book in playbooks.newest_by_name(context).items()
    }
    largest = max(sizes, key=lambda name: sizes[name], default="")
    return {"in a prompt": f"about {sizes[largest]:,} tokens ({largest})"} if sizes.get(largest) else {}


def _waiting(context: Context) -> None:
    """Add what waits for a person: candidates, proposed entries, paused playbooks, dead letters."""
    with ui.element("section").props('aria-label="Waiting for a person"'):
        heading("Waiting for a person", 2)
        nothing = ui.label("Nothing.").classes("quiet").props("role=status")
        listed = table(
            WAITING,
            key="what",
            label="What waits for a person",
            on_open=lambda row: ui.navigate.to(str(row["href"])),
        )

    def show() -> None:
        gates = gates_of(context.labels.all().values())
        rows = waiting_rows(waiting(gates, playbooks.newest_by_name(context), context.live.shared()))
        nothing.set_visibility(not rows)
        listed.set_visibility(bool(rows))
        fill(listed, rows)

    show()
    ui.timer(REFRESH_S, show)


def _trust(context: Context) -> None:
    """Add the posture towards sources, and whether anybody proves who they are."""
    with ui.element("section").props('aria-label="Who may teach?"'):
        heading("Who may teach?", 2)
        facts = Facts()

    def show() -> None:
        postures = context.settings.batch.postures
        facts.show(trust_facts(postures, playbooks.newest_by_name(context).values()))

    following(context, show)


class _Lessons:
    """Lessons below their versions; quotations are added when they have been read."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._body = ui.element("div").classes("lessons")
        self._shown: tuple[Learned, ...] | None = None
        self._quoted: dict[tuple[str, int], dict[str, Reflection]] = {}

    def show(self, lessons: tuple[Learned, ...]) -> None:
        """Show the lessons if they differ."""
        if lessons == self._shown:
            return
        self._shown = lessons
        self._body.clear()
        with self._body:
            if not lessons:
                ui.label(
                    "Nothing yet: publish a reflection or a trace, and see it become a lesson here."
                ).classes("quiet")
            for learned in lessons:
                self._version(learned)

    def _version(self, learned: Learned) -> None:
        version, name = learned.version, learned.playbook
        parts = [f"{moment(version.at_ms)} UTC"]
        if version.close_reason == "consolidate":
            parts.append("from a consolidation of entries")
        elif version.origin == "batch":
            parts.append(f"from a batch of {counted(version.reflections, 'reflection')}")
            if version.audit is not None:
                parts.append(f"of these {effects_text(version.audit)}")
        else:
            parts.append(f"from {version.origin}")
        with ui.element("section").classes("learned").props(f'aria-label="{name} version {version.version}"'):
            with ui.element("h2"):
                ui.link(f"{name} · version {version.version}", address(name, version.version))
            ui.label(" · ".join(parts)).classes("quiet")
            quotes = [self._lesson(learned, entry) for entry in learned.lessons]
            if learned.total > len(learned.lessons):
                left = learned.total - len(learned.lessons)
                ui.link(f"and {left} more in this version", address(name, version.version)).classes("more")
            if any(entry.evidence for entry in learned.lessons):
                ui.timer(0, lambda: self._quote(learned, quotes), once=True)

    def _lesson(self, learned: Learned, entry: Entry) -> ui.element:
        async def opened() -> None:
            await open_evidence(self._context, learned.playbook, entry)

        is_new = learned.is_new(entry)
        with ui.element("div").classes(f"entry {'added' if is_new else 'changed'}"):
            ui.label(entry.content).classes("words")
            quotes = ui.element("div").classes("quotes")
            with ui.element("div").classes("about"):
                ui.label("new" if is_new else "changed or confirmed").classes("quiet")
                button = ui.button(f"rests on {counted(entry.evidence_count, 'reflection')}", on_click=opened)
                button.props("flat dense no-caps")
                button.props["aria-label"] = f"evidence: {entry.evidence_count} for {entry.id}"
                ui.link(entry.id, address(learned.playbook, None, entry.id))
        return quotes

    async def _quote(self, learned: Learned, places: list[ui.element]) -> None:
        """Quote the newest reflections below each lesson; without the log the page stays unchanged."""
        key = (learned.playbook, learned.version.version)
        if key not in self._quoted:
            wanted = {reflection_id for entry in learned.lessons for reflection_id in entry.evidence}
            latest = self._context.playbooks.latest(learned.playbook)
            try:
                self._quoted[key] = await last_taught(self._context.log, latest, wanted)
            except (FatalError, TransientError):
                return
        for place, entry in zip(places, learned.lessons, strict=True):
            if place.is_deleted:
                return  # a newer snapshot replaced it meanwhile
            known = [
                self._quoted[key][reflection_id]
                for reflection_id in reversed(entry.evidence)
                if reflection_id in self._quoted[key]
            ]
            said = dict.fromkeys(
                redacted(reflection.key_insight or reflection.reasoning) for reflection in known
            )
            with place:
                for text in [quote for quote in said if quote][:QUOTED]:
                    ui.label(shorten(text, SHORT, placeholder=" …")).classes("quiet quote")
