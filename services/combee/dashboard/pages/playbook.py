"""One playbook by version: entries with their changes, labels, size and actions."""

from nicegui import ui

from combee.adapters.ports import FatalError, TransientError
from combee.core.names.sources import sources_text
from combee.core.playbook.budget import budget_of, budget_text, shown_tokens
from combee.core.playbook.comparison import Comparison, compare
from combee.core.playbook.retention import warnings
from combee.core.playbook.trust import trust_text
from combee.core.playbook.versions import empty
from combee.dashboard.admin import Admin
from combee.dashboard.listing import Listing
from combee.dashboard.pages.actions import Actions
from combee.dashboard.pages.audit import AuditTrail
from combee.dashboard.pages.candidate import CandidateSection
from combee.dashboard.pages.evidence import open_evidence
from combee.dashboard.pages.lines import BranchSection
from combee.dashboard.pieces import REFRESH_S, heading, replace_address
from combee.dashboard.views.entries import EntryList, entry_list
from combee.dashboard.views.rows import Row
from combee.dashboard.views.wording import address, title
from combee.gateway import playbooks
from combee.gateway.context import Context
from combee.log.reports.audit import audit_texts, version_text
from combee_schemas.playbook import Playbook


async def page(
    context: Context,
    admin: Admin,
    name: str,
    version: str = "",
    entry: str = "",
    *,
    only_changed: bool = False,
) -> None:
    """Build the page of one playbook, at a version or at the newest; scroll to a named entry.

    ``only_changed``: list only what the version changed.
    """
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
    browser = _Browser(context, admin, name, first=min(retained, default=newest), newest=newest, entry=entry)
    browser.list_only_changed(only=only_changed)
    await browser.show(int(version) if version.isdecimal() and int(version) <= newest else newest)
    browser.look()
    ui.timer(REFRESH_S, browser.look)


class _Browser:
    """One playbook, one version of it at a time."""

    def __init__(
        self, context: Context, admin: Admin, name: str, *, first: int, newest: int, entry: str
    ) -> None:
        self._context = context
        self._name = name
        self._entry = entry
        self._shown = empty(name)
        self._difference: Comparison = compare(self._shown, self._shown)
        self._listed = EntryList()
        self._labels: dict[str, int] = {}
        self._facts = _Facts(context)
        self._lines = BranchSection(context, name)
        self._actions = Actions(context, admin, lambda: self._shown)
        self._gate = CandidateSection(context, self._actions, name)
        with ui.element("div").classes("slide"):
            back = ui.button(icon="chevron_left", on_click=lambda: self._step(-1))
            back.props('flat round dense aria-label="Version before"')
            self._slider = ui.slider(min=first, max=newest, value=newest, on_change=self._moved)
            self._slider.props('aria-label="Version"')
            forth = ui.button(icon="chevron_right", on_click=lambda: self._step(1))
            forth.props('flat round dense aria-label="Version after"')
            self._which = ui.label().classes("which")
        self._newer = ui.button(on_click=self._to_newest).props("flat dense no-caps icon=new_releases")
        self._newer.set_visibility(False)
        with ui.element("div").classes("tools"):
            self._wanted = ui.input("Find in this version", on_change=self._list)
            self._wanted.props("type=search clearable debounce=200 outlined dense").classes("w-64")
            self._only = ui.switch("Only what changed since the version before", on_change=self._list)
        self._jump = ui.element("nav").classes("jump").props('aria-label="Sections"')
        self._status = ui.label().classes("quiet").props("role=status")
        self._list_shown = Listing("Entries", on_evidence=self._evidence, on_open=self._link)
        self._audit = AuditTrail(context, name)

    @property
    def version(self) -> int:
        """The version shown."""
        return int(self._slider.value)

    def list_only_changed(self, *, only: bool) -> None:
        """Set the switch that leaves out what is as in the version before."""
        self._only.value = only

    def look(self) -> None:
        """Follow the newest version and the labels: extend the slider and offer a button to the newest."""
        newest = self._context.playbooks.latest(self._name).version
        if newest > self._slider.props["max"]:
            self._slider.props["max"] = newest
            self._slider.update()
            self._newer.text = f"version {newest} is new"
        self._actions.look()
        self._newer.set_visibility(self._slider.value < newest)
        self._which.text = f"version {self.version} of {self._slider.props['max']}"
        self._lines.look()
        self._gate.look()
        self._audit.look()
        labels = {
            pointer.label: pointer.version
            for pointer in playbooks.labels_of(self._context, self._name).values()
        }
        if labels != self._labels:
            self._labels = labels
            self._facts.show(self._shown, labels)

    async def show(self, version: int) -> None:
        """Show a version."""
        if self.version != version:
            self._slider.value = version  # its handler calls this method again
            return
        self._newer.text = f"version {self._slider.props['max']} is newer"
        self.look()
        try:
            exact = await self._context.history.exactly(self._name, version)
            before = await self._context.history.exactly(self._name, version - 1)
        except (TransientError, FatalError) as error:
            ui.notify(f"The history cannot be read now: {error}", type="warning")
            return
        if self.version != version:
            return  # another version was chosen meanwhile
        self._shown = exact or empty(self._name)
        self._difference = compare(before or empty(self._name), self._shown)
        self._facts.show(self._shown, self._labels)
        self._actions.look()
        self._list()

    def _list(self) -> None:
        """List the entries of the version that match the filters."""
        text = self._wanted.value or ""
        listed = entry_list(self._shown, self._difference, text, only_changed=bool(self._only.value))
        at = listed.at(self._entry)
        if at is not None:
            listed.rows[at] = listed.rows[at] | {"chosen": True}
        self._status.text = _counted(
            listed, self._shown, is_filtered=bool(text.split()), only=self._only.value
        )
        self._list_shown.show(listed.rows)
        if list(listed.sections) != list(self._listed.sections):
            self._sections(listed)
        self._listed = listed
        if at is not None:
            self._list_shown.scroll_to(at)

    def _sections(self, listed: EntryList) -> None:
        self._jump.clear()
        self._jump.set_visibility(len(listed.sections) > 1)
        with self._jump:
            for section in listed.sections:
                button = ui.button(title(section), on_click=lambda _, target=section: self._to(target))
                button.props("outline dense no-caps")

    def _to(self, section: str) -> None:
        self._list_shown.scroll_to(self._listed.sections[section])

    def _link(self, row: Row) -> None:
        """Set the address to an entry, so that it can be shared."""
        self._entry = str(row["id"])
        replace_address(address(self._name, self.version, self._entry))
        self._list()

    async def _evidence(self, row: Row) -> None:
        if entry := next((entry for entry in self._shown.entries if entry.id == row["id"]), None):
            await open_evidence(self._context, self._name, entry)

    async def _moved(self) -> None:
        replace_address(address(self._name, self.version, self._entry))
        await self.show(self.version)

    def _step(self, by: int) -> None:
        wanted = self.version + by
        self._slider.value = max(self._slider.props["min"], min(wanted, self._slider.props["max"]))

    def _to_newest(self) -> None:
        self._slider.value = self._slider.props["max"]


class _Facts:
    """Facts about a version: origin, prompt size, labels."""

    def __init__(self, context: Context) -> None:
        self._configured = context.settings.playbook.playbook_tokens
        self._about = ui.label().classes("quiet")
        self._warned = ui.label().classes("wrong words").props("role=status")
        with ui.element("div").classes("sizes"):
            self._tokens = ui.label()
            self._bar = ui.linear_progress(0, show_value=False, size="8px").props(
                'aria-label="Prompt tokens"'
            )
        self._labels = ui.element("div").classes("labels")

    def show(self, playbook: Playbook, labels: dict[str, int]) -> None:
        """Show a version's facts."""
        self._about.text = (
            _about(playbook) if playbook.version else "This version is no longer in the history."
        )
        self._warned.text = "\n".join(f"warning: {text}" for text in warnings(playbook).values())
        tokens = sum(shown_tokens(playbook).values())
        budget, own = budget_of(playbook, self._configured), budget_text(playbook, self._configured)
        self._tokens.text = f"about {tokens:,} of {budget:,} prompt tokens" + (f"; {own}" if own else "")
        self._bar.value = min(1.0, tokens / budget)
        self._bar.props["color"] = "primary" if tokens <= budget else "negative"
        self._labels.clear()
        with self._labels:
            for label, version in sorted(labels.items()):
                is_here = version == playbook.version
                shown = ui.link(f"{label} → version {version}", address(playbook.name, version))
                shown.classes("pill here" if is_here else "pill")


def _counted(listed: EntryList, playbook: Playbook, *, is_filtered: bool, only: bool) -> str:
    if listed.shown and not is_filtered:
        return ""
    if is_filtered:
        return f"{listed.shown} of {len(playbook.entries)} entries have these words"
    return "The words are the same as in the version before." if only else "This version has no entries."


def _about(version: Playbook) -> str:
    batch = version.batch
    told = [text.strip() for text in audit_texts(batch)] if batch else []
    sources = sources_text(batch.sources) if batch else ""
    taught = [f"reflections: {sources}"] if sources else []
    return "; ".join(filter(None, [version_text(version), *told, *taught, trust_text(version)]))
