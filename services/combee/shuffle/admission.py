"""Admission that holds back a batch that is due: the method, a pause, spend caps, tenants' limits, a fork.

``core`` decides; each change of an answer is logged once.
"""

from collections.abc import Callable
from functools import partial

import structlog

from combee.adapters.ports import Clock
from combee.core.names.tenants import Tenants, tenant_of
from combee.core.playbook import spend
from combee.core.playbook.pausing import WOULD_EXPIRE, ends_soon
from combee.core.playbook.spend import LineSpend, Pause, SpendPolicy
from combee.core.playbook.versions import misfit
from combee.process.settings.methods import configured_method
from combee.process.worker.views import Playbooks
from combee.shuffle.partition import ShuffleState
from combee.shuffle.rules import BatchRules
from combee_schemas.base import playbook_of
from combee_schemas.playbook import PauseOrder

logger = structlog.get_logger()


class OrderedAdmission:
    """Blocks playbooks that a person paused, with their branches."""

    def __init__(self, playbooks: Playbooks, clock: Clock) -> None:
        self._playbooks = playbooks
        self._clock = clock
        self._paused: dict[str, PauseOrder] = {}
        self._warned: set[tuple[str, int]] = set()

    def blocks(self, line: str) -> bool:
        """Return whether the next batch must wait."""
        now_ms = self._clock.now_ms()
        order = self._playbooks.order(line, now_ms)
        known = self._paused.pop(line, None)
        if order is None:
            if known is not None:
                logger.info("resumed", playbook=line)
            return False
        self._paused[line] = order
        if known is None:
            logger.warning("paused", playbook=line, reason=f"by {order.issued_by}", until_ms=order.until_ms)
        if ends_soon(order, now_ms) and (line, order.until_ms) not in self._warned:
            self._warned.add((line, order.until_ms))
            logger.warning("pause_ends_soon", playbook=line, until_ms=order.until_ms, reason=WOULD_EXPIRE)
        return True

    def is_paused(self, line: str) -> bool:
        """Return whether an order held a line back at the last check."""
        return line in self._paused


class SpendAdmission:
    """Blocks playbooks that reached their spend cap, until the next day."""

    def __init__(self, policy: SpendPolicy, playbooks: Playbooks, clock: Clock) -> None:
        self.policy = policy
        self._playbooks = playbooks
        self._clock = clock
        self._paused: dict[str, Pause] = {}
        self._branches: dict[str, set[str]] = {}
        """By playbook, deleted ones too."""

    def at_once(self, playbook: str, limit: int) -> int:
        """Return how many batches of a playbook may be in flight."""
        if not self.policy.is_capped:
            return limit
        return spend.at_once(self._playbooks.latest(playbook).spend, self.policy, limit)

    def add_line(self, line: str) -> None:
        """Register a line, also a deleted one: the spending of branches counts against their playbook's cap."""
        if playbook_of(line) != line:
            self._branches.setdefault(playbook_of(line), set()).add(line)

    def blocks(self, state: ShuffleState, playbook: str, batch_size: Callable[[str], int]) -> bool:
        """Return whether the next batch, which is due, must wait; ``batch_size`` returns the size for a line."""
        if not self.policy.is_capped:
            return False
        pause = spend.pause(
            self._playbooks.latest(playbook).spend,
            self.policy,
            in_flight=state.manifests.count_in_flight(playbook),
            batch_size=batch_size(playbook),
            now_ms=self._clock.now_ms(),
            others=[
                LineSpend(
                    spend=self._playbooks.latest(line).spend,
                    in_flight=state.manifests.count_in_flight(line),
                    batch_size=batch_size(line),
                )
                for line in self._others(playbook)
            ],
        )
        known = self._paused.pop(playbook, None)
        if pause is not None:
            self._paused[playbook] = pause
            if known is None:
                logger.warning("paused", playbook=playbook, reason=pause.reason, until_ms=pause.until_ms)
            self._log_waiting_flushes(state, playbook, pause)
        elif known is not None:
            logger.info("resumed", playbook=playbook)
        return pause is not None

    def is_paused(self, line: str) -> bool:
        """Return whether a cap held a line back at the last check."""
        return line in self._paused

    def _others(self, line: str) -> set[str]:
        playbook = playbook_of(line)
        return {playbook, *self._branches.get(playbook, ())} - {line}

    @staticmethod
    def _log_waiting_flushes(state: ShuffleState, playbook: str, pause: Pause) -> None:
        """Log each flush of a paused playbook once: it waits, because a flush does not override a cap."""
        for offset in state.flushes.keys() - state.logged_flushes:
            if state.flushes[offset].playbook == playbook:
                state.logged_flushes.add(offset)
                logger.warning("flush_waits", playbook=playbook, reason=pause.reason, until_ms=pause.until_ms)


class TenantAdmission:
    """Blocks the playbooks of tenants that reached a daily limit or exceeded their rate."""

    def __init__(self, tenants: Tenants, clock: Clock) -> None:
        self.tenants = tenants
        self._clock = clock
        self._held: dict[str, str] = {}

    def blocks(self, playbook: str) -> bool:
        """Return whether the next batch, which is due, must wait."""
        tenant = tenant_of(playbook)
        pause = self.tenants.pause(tenant, self._clock.now_ms())
        wait_s = self.tenants.wait_s(tenant, self._clock.monotonic())
        reason = pause.reason if pause else f"tenant {tenant}: its reflections per second" if wait_s else ""
        known = self._held.pop(tenant, "")
        if reason:
            self._held[tenant] = reason
            if not known:
                logger.warning("tenant_held", tenant=tenant, reason=reason, wait_s=round(wait_s, 1))
        elif known:
            logger.info("tenant_resumed", tenant=tenant)
        return bool(reason)

    def is_held(self, playbook: str) -> bool:
        """Return whether limits held the playbook's tenant back at the last check."""
        return tenant_of(playbook) in self._held

    def cut(self, playbook: str, reflections: int) -> None:
        """Count the reflections of a batch that was cut."""
        self.tenants.admit(tenant_of(playbook), reflections, self._clock.monotonic())


class Admission:
    """All that may hold back the next batch of a line."""

    def __init__(
        self, policy: SpendPolicy, tenants: Tenants, rules: BatchRules, playbooks: Playbooks, clock: Clock
    ) -> None:
        self.spend = SpendAdmission(policy, playbooks, clock)
        self.tenant = TenantAdmission(tenants, clock)
        self.ordered = OrderedAdmission(playbooks, clock)
        self._rules = rules
        self._playbooks = playbooks
        self._holds = configured_method(rules.settings).HOLDS
        self._misfits: set[str] = set()

    def may_go(self, state: ShuffleState, line: str) -> bool:
        """Return whether a line may have another batch now."""
        return not (self.is_busy(state, line) or self.hold_back(state, line))

    def is_busy(self, state: ShuffleState, line: str) -> bool:
        """Return whether a line has as many batches in flight as it may."""
        limit = self.spend.at_once(line, self._rules.settings.max_inflight_batches)
        return state.manifests.count_in_flight(line) >= limit

    def hold_back(self, state: ShuffleState, line: str) -> bool:
        """Return whether a line's next batch, which is due, must wait, whatever is in flight."""
        return (
            state.is_forking(line)
            or self._is_misfit(line)
            or self.ordered.blocks(line)
            or self.spend.blocks(state, line, partial(self._rules.batch_size, state))
            or self.tenant.blocks(line)
        )

    def _is_misfit(self, line: str) -> bool:
        """Return whether the configured method would destroy what a line holds."""
        reason = misfit(self._playbooks.latest(line), self._holds, self._rules.settings.method)
        if reason is None:
            self._misfits.discard(line)
        elif line not in self._misfits:
            self._misfits.add(line)
            logger.error("method_misfit", playbook=line, reason=reason)
        return reason is not None
