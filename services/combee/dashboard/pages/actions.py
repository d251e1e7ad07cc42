"""Actions on a playbook's page.

Export the playbook, promote a version, roll back, edit, pause, resume, approve or reject the candidate.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Self

import structlog
from nicegui import ui

from combee.adapters.clock import moment
from combee.adapters.ports import FatalError, TransientError
from combee.core.commands import RefusedError
from combee.core.formats.editing import editable
from combee.core.formats.files import Format, write_playbook
from combee.core.gate.gate import gate_of
from combee.core.gate.judges import PERSON
from combee.core.log.replaying.selection import time_ms
from combee.core.playbook.comparison import Comparison, compare
from combee.core.playbook.pausing import order_of
from combee.dashboard.admin import Admin
from combee.gateway import playbooks
from combee.gateway.access.keys import Caller
from combee.gateway.context import Context
from combee.gateway.problems import Refusal
from combee.gateway.store import commands_of
from combee.log.commands.playbook import Candidate, Commands, Effect, PreparedCommand
from combee.log.reports.gate import judgement_text
from combee_schemas.playbook import Label, Playbook

logger = structlog.get_logger()

EFFECT_S = 20.0
"""Maximum wait for the effect of a command."""
EXPORTS: tuple[tuple[str, Format, str], ...] = (
    ("Markdown", "md", "md"),
    ("JSON", "json", "json"),
    ("ACE text", "ace", "txt"),
    ("SKILL.md", "skill", "md"),
)
"""Name, format and file suffix of each export."""
ROLL_BACK = "Roll back"
LIVE_LABEL = "production"
"""The usual name of the label that agents read."""

Decide = Callable[[Commands], Awaitable[PreparedCommand]]
Opened = Callable[[Caller], None]
ENTER = "(event) => { if (event.target.tagName === 'INPUT' && !event.isComposing) emit(); }"
"""Enter confirms in a single-line field; on a button it presses the button."""


def made_text(made: Effect) -> str:
    """Return a sentence about a command's effect."""
    if isinstance(made, Label):
        return f"{made.label} points at version {made.version}."
    return f"Version {made.version} was made."


class Actions:
    """The buttons of one playbook's page, and the dialogs behind them."""

    def __init__(self, context: Context, admin: Admin, shown: Callable[[], Playbook]) -> None:
        self._context = context
        self._admin = admin
        self._shown = shown
        self._pressed: ui.element | None = None
        """The button pressed last, which gets the focus back when its dialog closes."""
        self._compared: tuple[int, int] | None = None
        """The version shown and the newest one, when a rollback was last considered."""
        with ui.element("div").classes("tools"):
            with ui.button("Export", icon="download").props("flat dense no-caps"), ui.menu():
                for title, form, suffix in EXPORTS:
                    ui.menu_item(title, lambda f=form, s=suffix: self._export(f, s)).props("role=menuitem")
            self._buttons: dict[str, ui.button] = {}
            for title, icon, opened in (
                ("Promote", "new_label", self._promote),
                (ROLL_BACK, "history", self._rollback),
                ("Edit", "edit", self._edit),
                ("Pause", "pause", self._pause),
                ("Resume", "play_arrow", self._resume),
            ):
                button = ui.button(title, icon=icon).props("flat dense no-caps")
                button.on_click(lambda event, chosen=opened: self._begin(chosen, event.sender))
                self._buttons[title] = button
        self._status = ui.label().classes("outcome").props("role=status")
        self._status.set_visibility(False)

    def look(self) -> None:
        """Offer only what changes something: a rollback that agents would notice, a pause or its end."""
        shown = self._shown()
        newest = self._context.playbooks.latest(shown.name)
        is_paused = order_of([newest.paused], self._context.clock.now_ms()) is not None
        self._buttons["Pause"].set_visibility(not is_paused)
        self._buttons["Resume"].set_visibility(is_paused)
        if self._compared == (shown.version, newest.version):
            return
        self._compared = shown.version, newest.version
        difference = compare(newest, shown)
        noticed = (*difference.entry_ids, *difference.sections_added, *difference.sections_removed)
        self._buttons[ROLL_BACK].set_visibility(bool(shown.version and noticed))

    # ---- export

    def _export(self, form: Format, suffix: str) -> None:
        playbook = self._shown()
        name = "SKILL" if form == "skill" else f"{playbook.name.replace('/', '-')}-{playbook.version}"
        try:
            text = write_playbook(playbook, form)
        except ValueError as error:
            ui.notify(f"{playbook.name} cannot be written as {form}: {error}", type="warning")
            return
        ui.download.content(text, f"{name}.{suffix}")

    # ---- commands

    def _begin(self, opened: Opened, pressed: ui.element) -> None:
        self._pressed = pressed
        try:
            caller = self._admin.caller(self._shown().name)
        except Refusal as refusal:
            ui.notify(refusal.problem.detail, type="warning")
        else:
            opened(caller)

    def _promote(self, caller: Caller) -> None:
        playbook = self._shown()
        known = sorted(playbooks.labels_of(self._context, playbook.name))
        with _Form(f"Promote version {playbook.version}", f"as {caller.name}", self._pressed) as form:
            ui.label("Agents that read the label follow at once.").classes("quiet")
            label = ui.input("Label", value=known[0] if len(known) == 1 else LIVE_LABEL, autocomplete=known)
            label.props("outlined dense autofocus").classes("w-full")

        async def promote(commands: Commands) -> PreparedCommand:
            return await commands.promote(playbook.name, str(label.value or "").strip(), playbook.version)

        form.open("Promote", lambda: self._ask(form, promote))

    def _rollback(self, caller: Caller) -> None:
        playbook, newest = self._shown(), self._context.playbooks.latest(self._shown().name)
        is_gated = gate_of(playbooks.labels_of(self._context, playbook.name)) is not None
        with _Form(f"Roll back to version {playbook.version}?", f"as {caller.name}", self._pressed) as form:
            ui.label(
                f"Version {newest.version + 1} will have the content of version {playbook.version}; compared with"
                f" version {newest.version}: {_counted(compare(newest, playbook))}. Later lessons stay in the"
                " history."
            ).classes("words")
            if is_gated:
                ui.label(
                    "It waits at the gate like any other version. To change immediately what agents read, promote"
                    f" version {playbook.version} to {LIVE_LABEL}."
                ).classes("words")

        async def rollback(commands: Commands) -> PreparedCommand:
            return await commands.rollback(playbook.name, playbook.version)

        form.open("Roll back", lambda: self._ask(form, rollback))

    def _pause(self, caller: Caller) -> None:
        name = self._shown().name
        with _Form(f"Pause {name}", f"as {caller.name}", self._pressed) as form:
            ui.label(
                "Agents read on. What they send waits, and is learned from afterwards: nothing is lost, and nothing"
                " is paid for meanwhile. Without a time it ends before what waits expires."
            ).classes("words")
            until = ui.input("Until (UTC, optional)", placeholder="2026-01-31T15:00")
            until.props("outlined dense autofocus maxlength=40").classes("w-full")

        async def pause(commands: Commands) -> PreparedCommand:
            given = str(until.value or "").strip()
            try:
                until_ms = time_ms(given) if given else None
            except ValueError as error:
                raise RefusedError("invalid", str(error)) from error
            return await commands.pause(name, until_ms)

        form.open("Pause", lambda: self._ask(form, pause, _pause_text))

    def _resume(self, caller: Caller) -> None:
        name = self._shown().name
        with _Form(f"Resume {name}", f"as {caller.name}", self._pressed) as form:
            ui.label("Everything that waits is learned from.").classes("words")

        async def resume(commands: Commands) -> PreparedCommand:
            return await commands.resume(name)

        form.open("Resume", lambda: self._ask(form, resume, _pause_text))

    def _edit(self, caller: Caller) -> None:
        playbook = self._shown()
        with _Form(
            f"Edit version {playbook.version}", f"as {caller.name}", self._pressed, is_wide=True
        ) as form:
            text = ui.textarea(value=editable(playbook)).props(
                'outlined autofocus aria-label="Playbook as text"'
            )
            text.classes("w-full edited")

        async def edit(commands: Commands) -> PreparedCommand:
            return await commands.edit(playbook.name, str(text.value))

        form.open("Save", lambda: self._ask(form, edit))

    def judge(
        self, candidate: Candidate, pressed: ui.element, *, accepts: bool, entry_ids: Sequence[str] = ()
    ) -> None:
        """Ask a person to approve or reject a candidate, or these entries of it; ``pressed`` is the button."""
        if entry_ids:
            self._begin(lambda caller: self._reject_entries(caller, candidate, entry_ids), pressed)
        else:
            self._begin(lambda caller: self._judge(caller, candidate, accepts=accepts), pressed)

    def _judge(self, caller: Caller, candidate: Candidate, *, accepts: bool) -> None:
        verb, number, reads = "Approve" if accepts else "Reject", candidate.version, candidate.production
        others = ", ".join(judge for judge in candidate.waits_for if judge != PERSON)
        follows = f"once {others} accepts it, too" if others else "at once"
        production = f"version {reads}" if reads else "no version"
        with _Form(f"{verb} version {number}?", f"as {caller.name}", self._pressed) as form:
            ui.label(
                f"Agents read {production}; compared with it: {_counted(candidate.difference)}."
            ).classes("words")
            ui.label(
                f"Agents read version {number} {follows}."
                if accepts
                else "Agents never read it. Its batches are revoked for good, also on branches."
            ).classes("words")
            reason = _reason_field(optional=accepts)
            sources = None
            if not accepts:
                ui.label("To reject single entries, mark them in the list first.").classes("quiet words")
            if not accepts and candidate.sources:
                counts = {source: f"{source} ({count})" for source, count in candidate.sources.items()}
                sources = ui.select(counts, multiple=True, label="Only what these sources taught (optional)")
                sources.props("outlined dense use-chips").classes("w-full")

        def chosen() -> Sequence[str]:
            return tuple(sources.value or ()) if sources else ()

        async def judge(commands: Commands) -> PreparedCommand:
            return await commands.judge(
                candidate.name,
                number,
                accepts=accepts,
                reason=_reason(reason, optional=accepts),
                production=reads,
                sources=chosen(),
            )

        def effect_text(made: Effect) -> str:
            text = judgement_text(
                number, made.version, candidate.waits_for, accepts=accepts, in_part=bool(chosen())
            )
            return f"{text[0].upper()}{text[1:]}."

        form.open(verb, lambda: self._ask(form, judge, effect_text))

    def _reject_entries(self, caller: Caller, candidate: Candidate, entry_ids: Sequence[str]) -> None:
        number, reads = candidate.version, candidate.production
        with _Form(f"Reject entries of version {number}?", f"as {caller.name}", self._pressed) as form:
            ui.label(
                f"Changed entries return to the text that agents read, and new ones are removed, for good:"
                f" {', '.join(entry_ids)}. The rest of the version becomes the next candidate."
            ).classes("words")
            reason = _reason_field(optional=False)

        async def reject(commands: Commands) -> PreparedCommand:
            why = _reason(reason, optional=False)
            return await commands.judge(
                candidate.name, number, accepts=False, reason=why, production=reads, entry_ids=entry_ids
            )

        def effect_text(made: Effect) -> str:
            text = judgement_text(number, made.version, (), accepts=False, in_part=True)
            return f"{text[0].upper()}{text[1:]}."

        form.open("Reject", lambda: self._ask(form, reject, effect_text))

    async def _ask(
        self, form: "_Form", decide: Decide, effect_text: Callable[[Effect], str] = made_text
    ) -> None:
        """Send a form's command; then close the form and report the effect, or show the error in the form."""
        form.wait(waits=True)
        try:
            outcome = await self._given(self._shown().name, decide, effect_text)
        except Refusal as refusal:
            form.refuse(refusal.problem.detail)
        except (RefusedError, TransientError, FatalError) as error:
            form.refuse(str(error))
        except TimeoutError:
            form.refuse(
                "Kafka did not acknowledge the command in time: check for its effect before you try again"
            )
        else:
            self._status.text = outcome
            self._status.set_visibility(True)
            form.close()
        form.wait(waits=False)

    async def _given(self, name: str, decide: Decide, effect_text: Callable[[Effect], str]) -> str:
        """Send a command as the present caller; return a sentence about its effect."""
        caller = self._admin.caller(name)
        playbooks.check_current(self._context)
        commands = commands_of(self._context, f"key:{caller.name}")
        prepared = await decide(commands)
        if prepared.command is None:
            return "There was nothing to do."
        sent = await commands.send(prepared.command)
        logger.info("command_sent", kind=sent.command.kind, playbook=name, key=caller.name)
        made = await commands.outcome(sent, EFFECT_S)
        if made is not None:
            return effect_text(made)
        return (
            f"No effect within {EFFECT_S:.0f} s: the {prepared.command.kind} is in the log and takes effect when"
            " publish processes it."
        )


def _pause_text(made: Effect) -> str:
    order = made.paused if isinstance(made, Playbook) else None
    return f"It is paused until {moment(order.until_ms)} UTC." if order else "It learns again."


def _reason_field(*, optional: bool) -> ui.input:
    field = ui.input("Reason (optional)" if optional else "Reason")
    return field.props("outlined dense autofocus maxlength=2000").classes("w-full")


def _reason(field: ui.input, *, optional: bool) -> str:
    why = str(field.value or "").strip()
    if not optional and not why:
        raise RefusedError("invalid", "give a reason, which is recorded with the decision")
    return why


def _counted(difference: Comparison) -> str:
    counts = difference.counts()
    return ", ".join(f"{count} {how}" for how, count in counts.items()) or "the same content"


class _Form:
    """A dialog with buttons, open until its command is in the log; it shows why a command is refused."""

    def __init__(
        self, title: str, subtitle: str, pressed: ui.element | None, *, is_wide: bool = False
    ) -> None:
        self._pressed = pressed
        self._dialog = ui.dialog().props(f'aria-label="{title}"')
        if is_wide:
            self._dialog.props("persistent")  # a click outside does not discard the text
        self._dialog.on("hide", self._hidden)
        with self._dialog, ui.card().classes("wide" if is_wide else "w-full max-w-lg") as self._card:
            ui.label(title).classes("title")
            ui.label(subtitle).classes("quiet")

    def __enter__(self) -> Self:
        self._card.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._wrong = ui.label().classes("wrong words").props("role=alert")
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=self._dialog.close).props("flat no-caps")
            self._yes = ui.button().props("no-caps")
        self._card.__exit__()

    def _hidden(self) -> None:
        """Give the focus back, which Quasar cannot do after the dialog for the key."""
        if self._pressed is not None:
            ui.run_javascript(f"getHtmlElement({self._pressed.id})?.focus()")
        self._dialog.delete()

    def open(self, verb: str, confirmed: Callable[[], Awaitable[None]]) -> None:
        """Open the dialog; ``confirmed`` is called at each confirmation."""
        self._yes.text = verb

        async def once() -> None:
            if not self._yes.is_deleted and not self._yes.props.get("loading"):
                await confirmed()

        self._yes.on_click(once)
        self._card.on("keydown.enter", once, js_handler=ENTER)
        self._dialog.open()

    def wait(self, *, waits: bool) -> None:
        """Show whether a command is in progress."""
        if not self._yes.is_deleted:
            self._yes.props["loading"] = waits
            self._yes.update()

    def refuse(self, why: str) -> None:
        """Show why the command is refused."""
        if not self._wrong.is_deleted:
            self._wrong.text = why

    def close(self) -> None:
        """Close it."""
        if not self._dialog.is_deleted:
            self._dialog.close()
