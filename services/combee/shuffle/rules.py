"""Rules for a line's batches: their settings and size, and what a batch that is due must wait for.

``core`` decides; this module gives it the state. The begin and the end of a pause are logged once each.
"""

from collections.abc import Iterator, Mapping
from typing import Literal, get_args

import structlog

from combee.adapters.ports import Clock
from combee.core.batching.window import Share
from combee.core.names.tenants import Tenants, tenant_of
from combee.core.playbook import spend
from combee.core.playbook.budget import budget_of
from combee.core.playbook.pausing import WOULD_EXPIRE, ends_soon
from combee.core.playbook.spend import LineSpend, Pause, SpendPolicy
from combee.core.playbook.trust import parts, without_claims
from combee.core.playbook.versions import misfit
from combee.process.settings.batch import BatchSettings
from combee.process.settings.methods import configured_method, plan_settings
from combee.process.worker.views import Playbooks, View
from combee.shuffle.partition import ShuffleState
from combee_schemas.base import playbook_of
from combee_schemas.control import BatchSize
from combee_schemas.plan import Branch, PlanSettings, Trust
from combee_schemas.playbook import Playbook

logger = structlog.get_logger()

HOLDS_BACK = ("source", "tenant", "spend", "pause")
"""Reasons: a source's share of a batch, a tenant's limits, a cap on spending, a person's command."""


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
        self.spending, self._is_capped = spending, spending.is_capped
        self.budget_tokens, self._embeddings = budget_tokens, embeddings
        self._clock = clock
        self.tenants = tenants
        self._playbooks = playbooks
        self._sizes = sizes
        self._postures = settings.postures
        self._method_holds = configured_method(settings).HOLDS
        self._planned = {
            trust: plan_settings(settings, budget_tokens, embeddings, trust) for trust in get_args(Trust)
        }
        """The settings written into manifests of playbooks, by posture; branches may have others."""
        self._lines: dict[str, set[str]] = {}
        """By playbook, itself and its branches, deleted ones too."""
        self._held: set[tuple[str, str]] = set()
        """(reason, line or tenant) of what was held back at the last check."""
        self._warned: set[tuple[str, int]] = set()

    # ---- what versions tell

    def published(self, playbook: Playbook) -> None:
        """Note a line's newest version: its spending counts against the caps of its playbook and tenant."""
        self._lines.setdefault(playbook_of(playbook.name), set()).add(playbook.name)
        self.tenants.spent(playbook)

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
        """Return how much of a batch one source may fill while others wait; None: all of it."""
        trust = self._postures.of(line)
        if trust == "lab":
            return None
        newest = without_claims(self._playbooks.latest(line), trust)
        return Share(batch_size=self.batch_size(state, line), parts=parts(newest))

    # ---- what must wait

    def waits_for(self, state: ShuffleState, line: str) -> Literal["version", "check"] | None:
        """Return what a line's next batch, which is due, must wait for; None: it may be cut.

        ``version``: the line's next version, which is announced. ``check``: anything else; it is checked regularly.
        """
        limit = self.settings.max_inflight_batches
        if self._is_capped:
            limit = spend.at_once(self._playbooks.latest(line).spend, self.spending, limit)
        if state.manifests.count_in_flight(line) >= limit:
            return "version"
        if state.is_forking(line):
            return "check"
        # Last, as it logs: a batch that waits for another reason is not logged.
        for what, whom, why in self._holds(state, line):
            if (why is not None) != ((what, whom) in self._held):
                self._log_change(what, whom, why)
            if why is not None:
                self._log_waiting(state, line, what, why)
                return "check"
        return None

    def _holds(self, state: ShuffleState, line: str) -> Iterator[tuple[str, str, Pause | None]]:
        """Yield each possible reason to hold back a line, the line or tenant, and the pause; None: no pause."""
        now_ms = self._clock.now_ms()
        playbook, ordered = self._playbooks.latest(line), self._playbooks.order(line, now_ms)
        reason = misfit(playbook, self._method_holds, self.settings.method)
        yield "method", line, None if reason is None else Pause(reason=reason, until_ms=0)
        by_person = Pause(reason=f"by {ordered.issued_by}", until_ms=ordered.until_ms) if ordered else None
        yield "pause", line, by_person
        yield "spend", line, self._spend_pause(state, line, now_ms) if self._is_capped else None
        tenant = tenant_of(line)
        is_too_fast = self.tenants.wait_s(tenant, self._clock.monotonic()) > 0
        pause = self.tenants.pause(tenant, now_ms)
        if pause is None and is_too_fast:
            pause = Pause(reason=f"tenant {tenant}: its reflections per second", until_ms=0)
        yield "tenant", tenant, pause

    def _spend_pause(self, state: ShuffleState, line: str, now_ms: int) -> Pause | None:
        spent = {
            name: LineSpend(
                spend=self._playbooks.latest(name).spend,
                in_flight=state.manifests.count_in_flight(name),
                batch_size=self.batch_size(state, name),
            )
            for name in {line, playbook_of(line)} | self._lines.get(playbook_of(line), set())
        }
        own = spent.pop(line)
        return spend.pause(
            own.spend,
            self.spending,
            in_flight=own.in_flight,
            batch_size=own.batch_size,
            now_ms=now_ms,
            others=tuple(spent.values()),
        )

    # ---- what was held back at the last check

    def held(self, states: Mapping[int, ShuffleState]) -> Mapping[str, int]:
        """Return how many reflections of partitions are held back, by reason."""
        counts = dict.fromkeys(HOLDS_BACK, 0)
        for state in states.values():
            for line, window in state.windows.items():
                counts["source"] += window.over_share_count
                by = ("tenant", tenant_of(line)), ("pause", line), ("spend", line)
                if holding := next((what for what, whom in by if (what, whom) in self._held), None):
                    counts[holding] += len(window) - window.over_share_count
        return counts

    def _log_change(self, what: str, whom: str, why: Pause | None) -> None:
        """Log that a pause of a line or a tenant begins or ends."""
        self._held ^= {(what, whom)}
        match what, why:
            case "method", Pause():
                logger.error("method_misfit", playbook=whom, reason=why.reason)
            case "tenant", Pause():
                wait_s = round(self.tenants.wait_s(whom, self._clock.monotonic()), 1)
                logger.warning("tenant_held", tenant=whom, reason=why.reason, wait_s=wait_s)
            case "tenant", None:
                logger.info("tenant_resumed", tenant=whom)
            case (("pause" | "spend"), Pause()):
                logger.warning("paused", playbook=whom, reason=why.reason, until_ms=why.until_ms)
            case (("pause" | "spend"), None):
                logger.info("resumed", playbook=whom)

    def _log_waiting(self, state: ShuffleState, line: str, what: str, why: Pause) -> None:
        """Log once a pause that is about to end by itself, and each flush that waits: it does not override a cap."""
        if what == "pause" and (line, why.until_ms) not in self._warned:
            now_ms = self._clock.now_ms()
            order = self._playbooks.order(line, now_ms)
            if order is not None and ends_soon(order, now_ms):
                self._warned.add((line, why.until_ms))
                logger.warning("pause_ends_soon", playbook=line, until_ms=why.until_ms, reason=WOULD_EXPIRE)
        elif what == "spend":
            for offset in state.flushes.keys() - state.logged_flushes:
                if state.flushes[offset].playbook == line:
                    state.logged_flushes.add(offset)
                    logger.warning("flush_waits", playbook=line, reason=why.reason, until_ms=why.until_ms)
