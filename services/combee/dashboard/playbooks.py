"""Playbooks: all of them; one of them by version, with what changed; an entry and what taught it."""

from nicegui import ui

from combee.core.formats.render import section_order
from combee.core.playbook.apply import empty
from combee.core.playbook.comparison import Comparison, compare
from combee.dashboard.evidence import open_evidence
from combee.dashboard.pieces import fill, following, heading, replace_address, table, unreadable
from combee.dashboard.views import playbook_rows
from combee.dashboard.wording import address, moment, percent
from combee.gateway.context import Context
from combee.ports import FatalError, TransientError
from combee_schemas import topics
from combee_schemas.playbook import Entry, Playbook

COLUMNS = {
    "name": "playbook",
    "version": "version",
    "entries": "entries",
    "window": "window",
    "retention": "retention",
    "tokens": "tokens today",
    "cost": "cost today",
    "changed": "changed (UTC)",
}


def overview(context: Context) -> None:
    """Build the page of all playbooks."""
    heading("Playbooks")
    unreadable(context, topics.REFLECTIONS, topics.PLAYBOOKS, topics.HISTORY, topics.BATCH_SIZES)
    rows = table(
        COLUMNS,
        key="name",
        label="Playbooks",
        on_open=lambda row: ui.navigate.to(address(str(row["name"]))),
    )

    def show() -> None:
        fill(rows, playbook_rows(context.live.shared().playbooks))

    following(context, show)


async def page(context: Context, name: str, version: str = "") -> None:
    """Build the page of one playbook, at a version or at the newest."""
    heading(name or "Playbooks")
    newest = context.playbooks.latest(name).version
    if not newest:
        ui.label(f"There is no playbook {name!r}.")
        ui.link("All playbooks", "/playbooks")
        return
    reading = ui.label("reading the history …").classes("quiet")
    try:
        retained = await context.history.places(name)
    except (TransientError, FatalError) as error:
        reading.text = f"The history cannot be read now: {error}"
        return
    reading.delete()
    browser = _Browser(context, name, first=min(retained, default=newest), newest=newest)
    await browser.show(int(version) if version.isdecimal() and int(version) <= newest else newest)
    following(context, browser.look)


class _Browser:
    """One playbook, one version of it at a time."""

    def __init__(self, context: Context, name: str, *, first: int, newest: int) -> None:
        self._context = context
        self._name = name
        with ui.element("div").classes("slide"):
            back = ui.button(icon="chevron_left", on_click=lambda: self._step(-1))
            back.props('flat round dense aria-label="Version before"')
            self._slider = ui.slider(min=first, max=newest, value=newest, on_change=self._moved)
            self._slider.props('snap aria-label="Version"')
            forth = ui.button(icon="chevron_right", on_click=lambda: self._step(1))
            forth.props('flat round dense aria-label="Version after"')
            self._which = ui.label().classes("which").props('aria-live="polite"')
        self._about = ui.label().classes("quiet")
        self._newer = ui.button("", on_click=self._to_newest).props("flat dense no-caps icon=new_releases")
        self._newer.set_visibility(False)
        self._only = ui.switch("Only what changed since the version before", on_change=self._again)
        self._body = ui.element("div").classes("w-full")

    def look(self) -> None:
        """Follow the newest version: the slider grows, and a button leads there."""
        newest = self._context.playbooks.latest(self._name).version
        if newest > self._slider.props["max"]:
            self._slider.props["max"] = newest
            self._slider.update()
            self._newer.text = f"version {newest} is new"
        self._newer.set_visibility(self._slider.value < newest)
        self._which.text = f"version {int(self._slider.value)} of {self._slider.props['max']}"

    async def show(self, version: int) -> None:
        """Show a version."""
        if int(self._slider.value) != version:
            self._slider.value = version  # its handler comes back here
            return
        self._newer.text = f"version {self._slider.props['max']} is newer"
        self.look()
        try:
            found = await self._context.history.exactly(self._name, version)
            before = await self._context.history.exactly(self._name, version - 1)
        except (TransientError, FatalError) as error:
            ui.notify(f"The history cannot be read now: {error}", type="warning")
            return
        if int(self._slider.value) != version:
            return  # moved on while this was read
        self._body.clear()
        with self._body:
            if found is None:
                self._about.text = "This version is no longer in the history."
                return
            self._about.text = _about(found)
            difference = compare(before or empty(self._name), found)
            if self._only.value:
                _changes(difference)
            else:
                self._entries(found, difference)

    async def _moved(self) -> None:
        version = int(self._slider.value)
        replace_address(address(self._name, version))
        await self.show(version)

    async def _again(self) -> None:
        await self.show(int(self._slider.value))

    def _step(self, by: int) -> None:
        wanted = int(self._slider.value) + by
        self._slider.value = max(self._slider.props["min"], min(wanted, self._slider.props["max"]))

    def _to_newest(self) -> None:
        self._slider.value = self._slider.props["max"]

    def _entries(self, found: Playbook, difference: Comparison) -> None:
        new = {one.id: "added" for one in difference.added} | {
            one.id: "changed" for one in difference.changed
        }
        for section in section_order(found.sections, found.entries):
            inside = [one for one in found.entries if one.section == section]
            if inside:
                heading(section.capitalize() if section.isupper() else section, 2)
            for entry in inside:
                self._entry(entry, new.get(entry.id, ""))
        for gone in difference.removed:
            _line("removed", gone.id, gone.content, gone.told)

    def _entry(self, entry: Entry, kind: str) -> None:
        async def opened() -> None:
            await open_evidence(self._context, self._name, entry)

        with ui.element("div").classes(f"entry {kind}"):
            ui.label(entry.content).classes("words")
            with ui.element("div").classes("about"):
                told = f"[{entry.id}] helpful {entry.helpful}, harmful {entry.harmful}"
                ui.label(f"{told}, {kind}" if kind else told).classes("quiet")
                button = ui.button(f"evidence: {entry.evidence_count}", on_click=opened)
                button.props("flat dense no-caps size=sm")
                button.props["aria-label"] = f"evidence: {entry.evidence_count} for {entry.id}"


def _about(found: Playbook) -> str:
    batch = f", batch {found.batch_sequence} of {found.reflections} reflections" if found.batch else ""
    kept = percent(found.batch.retention[-1]) if found.batch and found.batch.retention else "–"
    when = moment(found.created_at_ms)
    count = f"{len(found.entries)} {'entry' if len(found.entries) == 1 else 'entries'}"
    return f"{when} UTC, from {found.origin}{batch}, {count}, retention {kept}"


def _changes(difference: Comparison) -> None:
    if not (difference.added or difference.removed or difference.changed):
        ui.label("The words are the same as in the version before.").classes("quiet")
    for one in difference.added:
        _line("added", one.id, f"+ {one.content}")
    for gone in difference.removed:
        _line("removed", gone.id, f"− {gone.content}", gone.told)
    for both in difference.changed:
        _line("changed", both.id, f"− {both.before}\n+ {both.after}")


def _line(kind: str, entry_id: str, text: str, told: str = "") -> None:
    with ui.element("div").classes(f"entry {kind}"):
        ui.label(text).classes("words")
        ui.label(f"[{entry_id}] {told or kind}").classes("quiet")
