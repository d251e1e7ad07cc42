"""Authorisation of commands on a page, by an entered key or the browser's session.

An entered key is kept only in this page's memory.
"""

from http import HTTPStatus

from nicegui import ui

from combee.gateway.access.access import COMMANDS, caller_of, commander
from combee.gateway.access.keys import Caller
from combee.gateway.context import Context
from combee.gateway.endpoints.sessions import COOKIE
from combee.gateway.problems import Refusal


class Admin:
    """The caller of one open page, until a reload; the key itself is not kept."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._caller: Caller | None = None
        request = ui.context.client.request
        self._session = request.cookies.get(COOKIE) if request is not None else None
        self._shown = ui.button(on_click=self.forget, color=None).props("flat dense no-caps icon=lock_open")
        self._shown.tooltip("commands are sent with this key; click to forget it").set_visibility(False)

    def caller(self, playbook: str) -> Caller:
        """Return the caller that may send commands to a playbook now.

        Raises
        ------
        Refusal
            If there is no key, or it lacks the right.
        """
        self._context.keys.refresh(self._context.clock.now_ms())
        try:
            return self._commander(self._caller or self._of_session(), playbook)
        except Refusal:
            self.forget()
            raise

    def forget(self) -> None:
        """Forget the key."""
        self._caller = self._session = None
        self._shown.set_visibility(False)

    async def asked(self, playbook: str) -> Caller | None:
        """Return the caller that may send commands, after asking for a missing key; None if none was entered."""
        if self._caller is None and self._of_session() is None and self._context.keys:
            await self._ask(playbook)
        try:
            return self.caller(playbook)
        except Refusal as refusal:
            if self._caller is not None or not self._context.keys:
                ui.notify(refusal.problem.detail, type="warning")
            return None

    async def _ask(self, playbook: str) -> None:
        with ui.dialog().props('aria-label="Key"') as dialog, ui.card().classes("w-full max-w-md"):
            ui.label(f"A key with the scope {COMMANDS}").classes("title")
            ui.label(
                "Only this page's memory keeps the key's owner, until you reload or leave the page."
            ).classes("quiet")
            key = ui.input("Key", password=True).props("autofocus outlined dense autocomplete=off")
            wrong = ui.label().classes("wrong").props("role=alert")

            async def tried() -> None:
                given, key.value = str(key.value or "").strip(), ""
                try:
                    self._take(await self._identified(given), playbook)
                except Refusal as refusal:
                    wrong.text = refusal.problem.detail
                    return
                dialog.submit(None)

            key.classes("w-full").on("keydown.enter", tried)
            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
                ui.button("Use this key", on_click=tried).props("no-caps")
        await dialog
        dialog.delete()

    async def _identified(self, given: str) -> Caller | None:
        request, context = ui.context.client.request, self._context
        address = request.client.host if request is not None and request.client else ""
        caller = await caller_of(context.keys, context.throttle, context.clock, address, given)
        if caller is None or not caller.has_key:
            context.throttle.refused(address)
            return None
        return caller

    def _of_session(self) -> Caller | None:
        return self._context.sessions.caller(self._session, self._context.clock.now_ms())

    def _commander(self, caller: Caller | None, playbook: str) -> Caller:
        context = self._context
        return commander(
            context.keys, caller, playbook, context.clock.now_ms(), is_judged=context.is_judged()
        )

    def _take(self, caller: Caller | None, playbook: str) -> None:
        if caller is None:
            raise Refusal(HTTPStatus.UNAUTHORIZED, "this key is unknown")
        self._caller = self._commander(caller, playbook)
        self._shown.text = caller.name
        self._shown.set_visibility(True)
