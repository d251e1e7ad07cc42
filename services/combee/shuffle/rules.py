"""Rules for a line's batches: their settings and size, when a window may close, and what makes it wait.

``core`` decides; here it is told what is known. What begins or ends to hold back a line is logged once.
"""

import math
from collections.abc import Iterator, Mapping
from typing import get_args

import structlog

from combee.adapters.ports import Clock
from combee.core.batching.limits import SPAN
from combee.core.batching.window import Close, Share, Window, due
from combee.core.names.tenants import Tenants, tenant_of
from combee.core.playbook import spend
from combee.core.playbook.apply import misfit
from combee.core.playbook.budget import budget_of
from combee.core.playbook.pausing import WOULD_EXPIRE, ends_soon
from combee.core.playbook.spend import LineSpend, Pause, SpendPolicy
from combee.core.playbook.trust import parts
from combee.process.settings.batch import BatchSettings
from combee.process.settings.methods import configured_method, plan_settings
from combee.process.worker.views import Playbooks, View
from combee.shuffle.partition import REFLECTIONS, ShuffleState
from combee_schemas.base import playbook_of
from combee_schemas.control import BatchSize
from combee_schemas.plan import Branch, PlanSettings, Trust

logger = structlog.get_logger()

HOLDS_BACK = ("source", "tenant", "spend", "pause")
"""A source's share of a batch, a tenant's limits, a cap on spending, a person's order."""


class BatchRules:
    """The rules that follow from the settings, versions, the controller's decisions and a branch's own settings."""

    def __init__(
        self,
        clock: Clock,
        settings: BatchSettings,
        spending: SpendPolicy,
        tenants: Tenants,
        *,
        budget_tokens: int,
        embeddings: str,
        playbooks: Playbooks,
        sizes: View[BatchSize],
    ) -> None:
        self.settings = settings
        self.spending = spending
        self.budget_tokens, self._embeddings = budget_tokens, embeddings
        self._clock = clock
        self._tenants = tenants
        self._playbooks = playbooks
        self._sizes = sizes
        self._postures = settings.postures
        self._method_holds = configured_method(settings).HOLDS
        self._planned = {
            trust: plan_settings(settings, budget_tokens, embeddings, trust) for trust in get_args(Trust)
        }
        """The settings written into manifests of playbooks, by posture; branches may have others."""
        self._branches: dict[str, set[str]] = {}
        """By playbook, deleted ones too: their spending counts against the playbook's cap."""
        self._held: set[tuple[str, str]] = set()
        """What held back whom at the last check: a line, or a tenant."""
        self._warned: set[tuple[str, int]] = set()

    # ---- what versions tell

    def published(self, line: str) -> None:
        """Take note of a line's newest version."""
        if playbook_of(line) != line:
            self._branches.setdefault(playbook_of(line), set()).add(line)

    # ---- settings and size

    def settings_of(self, line: str, branch: Branch | None) -> PlanSettings:
        """Return the settings written into a line's manifests; ``branch``: that of the line, None: a playbook."""
        trust = self._postures.of(line)
        configured = self.budget_tokens
        budget = budget_of(self._playbooks.latest(line), configured) if configured else 0
        if branch is None:
            return self._planned[trust].model_copy(update={"playbook_tokens": budget})
        settings = self.settings.model_copy(update=branch.settings.own())
        return plan_settings(settings, budget, self._embeddings, trust)

    def batch_size(self, state: ShuffleState, line: str) -> int:
        """Return how many reflections make a batch of a line."""
        branch = state.branches.get(line)
        if branch and branch.settings.batch_size:
            return branch.settings.batch_size
        decided = self._sizes.get(line)
        return decided.batch_size if decided else self.settings.batch_size

    def share(self, state: ShuffleState, line: str) -> Share | None:
        """Return how much of a batch one source may fill where others wait; None: all of it."""
        if self._postures.of(line) == "lab":
            return None
        return Share(batch_size=self.batch_size(state, line), parts=parts(self._playbooks.latest(line)))

    # ---- what may close

    def close(self, state: ShuffleState, line: str, window: Window) -> Close | None:
        """Return the batch that a line's window should close with now; None: it stays open."""
        return due(
            window,
            self.batch_size(state, line),
            max_wait_s=self.settings.max_wait_s,
            now=self._clock.monotonic(),
            newest_offset=state.seen[REFLECTIONS],
        )

    def lines_to_look_at(self, state: ShuffleState) -> list[str]:
        """Return the lines that have changed or whose first reflection is old, the oldest first."""
        return state.take_changed(
            seen_by=self._clock.monotonic() - self.settings.max_wait_s,
            before=state.seen[REFLECTIONS] - SPAN,
        )

    def due_in(self, state: ShuffleState) -> float:
        """Return in how many seconds a window may be due by time alone."""
        since = state.agenda.waiting_since
        if since is None:
            return math.inf
        return max(0.0, since + self.settings.max_wait_s - self._clock.monotonic())

    # ---- what must wait

    def may_cut(self, state: ShuffleState, line: str) -> bool:
        """Return whether a line may have another batch now."""
        return not (self.is_busy(state, line) or self.is_held_back(state, line))

    def is_busy(self, state: ShuffleState, line: str) -> bool:
        """Return whether a line has as many batches in flight as it may."""
        limit = self.settings.max_inflight_batches
        if self.spending.is_capped:
            limit = spend.at_once(self._playbooks.latest(line).spend, self.spending, limit)
        return state.manifests.count_in_flight(line) >= limit

    def is_held_back(self, state: ShuffleState, line: str) -> bool:
        """Return whether a line's next batch, which is due, must wait, whatever is in flight."""
        if state.is_forking(line):
            return True
        for what, whom, why in self._holds(state, line):
            self._log_change(what, whom, why)
            if why is not None:
                if what == "pause":
                    self._warn_of_end(line)
                if what == "spend":
                    self._log_waiting_flushes(state, line, why)
                return True
        return False

    def _holds(self, state: ShuffleState, line: str) -> Iterator[tuple[str, str, Pause | None]]:
        """Yield what may hold back a line, whom it holds back by it, and why; None: it does not."""
        playbook, tenant, now_ms = self._playbooks.latest(line), tenant_of(line), self._clock.now_ms()
        reason = misfit(playbook, self._method_holds, self.settings.method)
        yield "method", line, None if reason is None else Pause(reason=reason, until_ms=0)
        order = self._playbooks.order(line, now_ms)
        yield "pause", line, Pause(reason=f"by {order.issued_by}", until_ms=order.until_ms) if order else None
        yield "spend", line, self._spend_pause(state, line, now_ms) if self.spending.is_capped else None
        pause = self._tenants.pause(tenant, now_ms)
        if pause is None and self._tenants.wait_s(tenant, self._clock.monotonic()):
            pause = Pause(reason=f"tenant {tenant}: its reflections per second", until_ms=0)
        yield "tenant", tenant, pause

    def _spend_pause(self, state: ShuffleState, line: str, now_ms: int) -> Pause | None:
        of, others = playbook_of(line), []
        for other in {of, *self._branches.get(of, ())} - {line}:
            in_flight, size = state.manifests.count_in_flight(other), self.batch_size(state, other)
            spent = self._playbooks.latest(other).spend
            others.append(LineSpend(spend=spent, in_flight=in_flight, batch_size=size))
        return spend.pause(
            self._playbooks.latest(line).spend,
            self.spending,
            in_flight=state.manifests.count_in_flight(line),
            batch_size=self.batch_size(state, line),
            now_ms=now_ms,
            others=others,
        )

    def admitted(self, line: str, reflections: int) -> None:
        """Count the reflections of a batch that was cut against the limits of the line's tenant."""
        self._tenants.admit(tenant_of(line), reflections, self._clock.monotonic())

    # ---- what was held back at the last check

    def held(self, states: Mapping[int, ShuffleState]) -> Mapping[str, int]:
        """Return how many reflections of partitions are held back, by what does that."""
        counts = dict.fromkeys(HOLDS_BACK, 0)
        for state in states.values():
            for line, window in state.windows.items():
                counts["source"] += window.over_share_count
                by = ("tenant", tenant_of(line)), ("pause", line), ("spend", line)
                if holding := next((what for what, whom in by if (what, whom) in self._held), None):
                    counts[holding] += len(window) - window.over_share_count
        return counts

    def _log_change(self, what: str, whom: str, why: Pause | None) -> None:
        """Log what begins, or ends, to hold back a line or a tenant."""
        was_held = (what, whom) in self._held
        if why is None:
            self._held.discard((what, whom))
        else:
            self._held.add((what, whom))
        if was_held == (why is not None):
            return
        match what, why:
            case "method", Pause():
                logger.error("method_misfit", playbook=whom, reason=why.reason)
            case "tenant", Pause():
                wait_s = round(self._tenants.wait_s(whom, self._clock.monotonic()), 1)
                logger.warning("tenant_held", tenant=whom, reason=why.reason, wait_s=wait_s)
            case "tenant", None:
                logger.info("tenant_resumed", tenant=whom)
            case (("pause" | "spend"), Pause()):
                logger.warning("paused", playbook=whom, reason=why.reason, until_ms=why.until_ms)
            case (("pause" | "spend"), None):
                logger.info("resumed", playbook=whom)

    def _warn_of_end(self, line: str) -> None:
        """Log once that a pause is about to end by itself."""
        now_ms = self._clock.now_ms()
        order = self._playbooks.order(line, now_ms)
        if order is not None and ends_soon(order, now_ms) and (line, order.until_ms) not in self._warned:
            self._warned.add((line, order.until_ms))
            logger.warning("pause_ends_soon", playbook=line, until_ms=order.until_ms, reason=WOULD_EXPIRE)

    @staticmethod
    def _log_waiting_flushes(state: ShuffleState, playbook: str, pause: Pause) -> None:
        """Log each flush of a paused playbook once: it waits, because a flush does not override a cap."""
        for offset in state.flushes.keys() - state.logged_flushes:
            if state.flushes[offset].playbook == playbook:
                state.logged_flushes.add(offset)
                logger.warning("flush_waits", playbook=playbook, reason=pause.reason, until_ms=pause.until_ms)
