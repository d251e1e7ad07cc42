"""Tenants of one deployment: name spaces of playbooks with limits of their own; time is an argument.

A tenant is the part of its playbooks' names before the first ``/``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from combee.core.playbook.spend import Pause, today
from combee_schemas.base import DAY_MS, playbook_of
from combee_schemas.playbook import Playbook, Spend

EVERY = "*"
"""Placeholder for tenants without limits of their own; each has these limits for itself."""
AT_THE_DOOR_S, IN_BATCHES_S = 1.0, 600.0
"""Seconds of a tenant's rate that may arrive at once: at intake, and when batches are cut, because a tenant within
its rate has windows that fill for a while and close together."""

MAX_IDLE = 10_000
"""Number of tenants from which on idle ones are forgotten: anybody can invent a name."""


def tenant_of(line: str) -> str:
    """Return the tenant of a playbook or branch."""
    return playbook_of(line).partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one tenant; None: no limit."""

    reflections_per_second: float | None = None
    daily_tokens: int | None = None
    daily_cost: float | None = None


UNLIMITED = Limits()
NO_LIMITS: Mapping[str, Limits] = {}


@dataclass(slots=True)
class _Use:
    """The usage of one tenant."""

    day: int = 0
    spent: dict[str, Spend] = field(default_factory=dict)
    """Today's spend by line."""
    tokens: int = 0
    cost: float = 0.0
    due_s: float = float("-inf")
    """Time at which the admitted reflections are through at the tenant's rate."""


class Tenants:
    """The usage and limits of tenants."""

    def __init__(self, limits: Mapping[str, Limits], *, burst_s: float = AT_THE_DOOR_S) -> None:
        self._limits = limits
        self._burst_s = burst_s
        self._uses: dict[str, _Use] = {}
        self._forget_at = MAX_IDLE

    @classmethod
    def of(cls, limits: Mapping[str, Limits], playbooks: Iterable[Playbook]) -> "Tenants":
        """Return the usage of these playbooks' and branches' tenants."""
        tenants = cls(limits)
        for playbook in playbooks:
            tenants.spent(playbook)
        return tenants

    @property
    def are_limited(self) -> bool:
        """Whether any tenant has a limit."""
        return bool(self._limits)

    def limits(self, tenant: str) -> Limits:
        """Return a tenant's limits."""
        return self._limits.get(tenant) or self._limits.get(EVERY, UNLIMITED)

    def spent(self, playbook: Playbook) -> None:
        """Note the spend recorded in a playbook's or branch's newest version."""
        use = self._uses.setdefault(tenant_of(playbook.name), _Use())
        spend = playbook.spend
        if spend.day > use.day:
            use.day, use.spent, use.tokens, use.cost = spend.day, {}, 0, 0.0
        if spend.day == use.day:
            known = use.spent.get(playbook.name, Spend())
            use.tokens += spend.tokens - known.tokens
            use.cost += spend.cost - known.cost
            use.spent[playbook.name] = spend

    def pause(self, tenant: str, now_ms: int) -> Pause | None:
        """Return why a tenant gets no further batch today; None if it does."""
        use, limits = self._uses.get(tenant, _Use()), self.limits(tenant)
        spend = today(Spend(day=use.day, tokens=use.tokens, cost=use.cost), now_ms)
        for words, spent, cap in (
            ("{:,.0f} of {:,.0f} tokens", spend.tokens, limits.daily_tokens),
            ("{:,.4f} of {:,.4f} in money", spend.cost, limits.daily_cost),
        ):
            if cap is not None and spent >= cap:
                reason = f"tenant {tenant}: {words.format(spent, cap)} spent today by all its playbooks"
                return Pause(reason=reason, until_ms=(spend.day + 1) * DAY_MS)
        return None

    def wait_s(self, tenant: str, now_s: float) -> float:
        """Return the seconds for which a tenant's rate admits nothing; 0: it admits now, any number at once."""
        use = self._uses.get(tenant)
        return max(0.0, use.due_s - now_s - self._burst_s) if use else 0.0

    def admit(self, tenant: str, reflections: int, now_s: float) -> None:
        """Count admitted reflections; later ones wait until they are through at the tenant's rate."""
        rate = self.limits(tenant).reflections_per_second
        if rate is not None:
            use = self._uses.setdefault(tenant, _Use())
            use.due_s = max(use.due_s, now_s) + reflections / rate
            if len(self._uses) >= self._forget_at:
                self._uses = {name: use for name, use in self._uses.items() if use.spent or use.due_s > now_s}
                self._forget_at = max(MAX_IDLE, 2 * len(self._uses))

    @property
    def known(self) -> int:
        """The number of tenants whose usage is known."""
        return len(self._uses)
