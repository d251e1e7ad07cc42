"""Authorisation of commands on a page: its browser's session, or the key with which the page was opened."""

from nicegui import ui

from combee.gateway.access.access import CALLER, commander
from combee.gateway.access.keys import Caller
from combee.gateway.context import Context


class Admin:
    """The caller of one open page."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._request = ui.context.client.request
        self._has_session = self._of_session() is not None

    def caller(self, playbook: str) -> Caller:
        """Return the caller that may send commands to a playbook now.

        Raises
        ------
        Refusal
            If the key or the session is not valid any more, or the key lacks the right.
        """
        context, now_ms = self._context, self._context.clock.now_ms()
        context.keys.refresh(now_ms)
        caller = self._of_session() if self._has_session else self._request.scope[CALLER]
        return commander(context.keys, caller, playbook, now_ms, is_judged=context.is_judged())

    def _of_session(self) -> Caller | None:
        return self._context.sessions.of(self._request.cookies, self._context.clock.now_ms())
