"""The candidate of a gated playbook: its differences from the version that agents read, and its verdicts."""

from collections.abc import Collection

from nicegui import background_tasks, ui

from combee.adapters.ports import FatalError, TransientError
from combee.core.commands import RefusedError
from combee.core.evaluation.outcomes.report import outcomes_report
from combee.core.gate.gate import Gate, gate_of
from combee.core.gate.judges import PERSON
from combee.core.playbook.versions import empty
from combee.dashboard.listing import Listing
from combee.dashboard.pages.actions import Actions
from combee.dashboard.pages.evidence import open_evidence
from combee.dashboard.pieces import fill, heading, table
from combee.dashboard.views.entries import entry_list
from combee.dashboard.views.gates import compared_rows, verdict_rows
from combee.dashboard.views.rows import Row
from combee.dashboard.views.wording import address
from combee.gateway import playbooks
from combee.gateway.context import Context
from combee.gateway.store import commands_of
from combee.log.commands.playbook import Candidate
from combee.log.reports.decisions import verdict_reports
from combee.log.reports.gate import gate_report
from combee_schemas.playbook import Playbook

VERDICTS = {
    "judge": "judge",
    "said": "says",
    "why": "why",
    "figures": "figures",
    "by": "by",
    "at": "when (UTC)",
}
OUTCOMES = {
    "which": "outcomes of",
    "version": "version",
    "success": "success (95 % interval)",
    "runs": "runs",
    "unscored": "unscored",
    "scores": "scores",
}
FIGURES_S = 5.0
REJECT = "Reject"


class CandidateSection:
    """The section, hidden for a playbook without a gate."""

    def __init__(self, context: Context, actions: Actions, name: str) -> None:
        self._context = context
        self._actions = actions
        self._name = name
        self._gate: Gate | None = None
        """The gate at the time when the candidate was read."""
        self._candidate: Candidate | None = None
        self._playbook: Playbook = empty(name)
        self._picked: tuple[str, ...] = ()
        """The entries picked for rejection."""
        self._is_reading = False
        with ui.element("section").props('aria-label="Candidate"').classes("gate") as self._section:
            heading("Candidate", 2)
            self._state = ui.label().classes("words").props("role=status")
            with ui.element("div").classes("w-full") as self._body:
                self._verdicts = table(VERDICTS, key="judge", label="Verdicts")
                self._outcomes = table(OUTCOMES, key="which", label="Outcomes of candidate and production")
                self._difference = ui.label().classes("quiet")
                self._entries = Listing(
                    "What the candidate changes",
                    on_evidence=self._evidence,
                    on_open=self._open,
                    on_pick=self._pick,
                )
                with ui.element("div").classes("tools"):
                    self._approve = ui.button("Approve", icon="check").props("outline dense no-caps")
                    self._approve.on_click(lambda event: self._judge(event.sender, accepts=True))
                    self._reject = ui.button(REJECT, icon="close").props("outline dense no-caps")
                    self._reject.on_click(lambda event: self._judge(event.sender, accepts=False))
        self._section.set_visibility(False)
        self._body.set_visibility(False)
        ui.timer(FIGURES_S, self._show_figures)

    def look(self) -> None:
        """Show the present state; read the candidate again if it or its verdicts changed."""
        gate = gate_of(playbooks.labels_of(self._context, self._name))
        self._section.set_visibility(gate is not None)
        if gate == self._gate or self._is_reading:
            return
        if gate is not None:
            text = gate_report(gate).text
            self._state.text = f"{text[0].upper()}{text[1:]}."
        if gate is None or gate.candidate is None:
            self._gate, self._candidate = gate, None
            self._body.set_visibility(False)
            return
        self._is_reading = True
        background_tasks.create(self._read(gate))

    async def _read(self, gate: Gate) -> None:
        try:
            candidate = await commands_of(self._context, "dashboard").candidate(self._name)
            latest = self._context.playbooks.latest(self._name)
            shown = await self._context.history.exactly(self._name, candidate.version, latest)
        except (TransientError, FatalError, RefusedError):
            return  # decided meanwhile, or the log is unavailable: tried again at the next refresh
        finally:
            self._is_reading = False
        if self._section.is_deleted:
            return
        shown = shown or empty(self._name)  # it is no longer in the history
        self._gate, self._candidate, self._playbook = gate, candidate, shown
        listed = entry_list(shown, candidate.difference, only_changed=True)
        self._difference.text = f"What version {candidate.version} changes for agents, and the sources:"
        self._entries.show(listed.rows)
        self._pick(())
        await self._show_figures()
        self._body.set_visibility(True)

    async def _show_figures(self) -> None:
        """Show the present verdicts, canary progress and outcomes; without the log the old ones stay."""
        candidate, outcomes = self._candidate, self._context.outcomes
        if candidate is None:
            return
        try:
            statistics = (await outcomes.by_line()).get(self._name)
            canary = await outcomes.canary(self._name)
        except (TransientError, FatalError):
            return
        if self._section.is_deleted or candidate is not self._candidate:
            return
        verdicts = verdict_reports(candidate.verdicts, candidate.waits_for, canary)
        fill(self._verdicts, verdict_rows(verdicts))
        fill(
            self._outcomes,
            list(compared_rows(candidate, outcomes_report(self._name, statistics, candidate.newest))),
        )

    def _judge(self, pressed: ui.element, *, accepts: bool) -> None:
        if self._candidate is not None:
            picked = () if accepts else self._picked
            self._actions.judge(self._candidate, pressed, accepts=accepts, entry_ids=picked)

    def _pick(self, entry_ids: Collection[str]) -> None:
        self._picked = tuple(entry_ids)
        waits = self._candidate is not None and PERSON in self._candidate.waits_for
        self._approve.set_visibility(waits and not entry_ids)
        entries = "1 entry" if len(entry_ids) == 1 else f"{len(entry_ids)} entries"
        self._reject.text = f"{REJECT} {entries}" if entry_ids else REJECT

    async def _evidence(self, row: Row) -> None:
        if entry := next((entry for entry in self._playbook.entries if entry.id == row["id"]), None):
            await open_evidence(self._context, self._name, entry)

    def _open(self, row: Row) -> None:
        ui.navigate.to(address(self._name, self._playbook.version, str(row["id"])))
