"""Daily spend of a playbook (UTC), and the cap that pauses aggregation; pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from combee_schemas.base import DAY_MS, Usage
from combee_schemas.playbook import PauseOrder, Spend

MILLION = 1_000_000
MOST = 10**15
"""Maximum of a sum, so that it fits a message."""


class Tokens(Protocol):
    """Tokens of one model call, or of many."""

    @property
    def tokens_in(self) -> int:
        """Input tokens."""

    @property
    def cached_tokens(self) -> int:
        """Part of the input tokens from the server's prompt cache."""

    @property
    def tokens_out(self) -> int:
        """Output tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendPolicy:
    """Prices per million tokens, and one playbook's limits per day; None: no cap."""

    price_in: float = 0.0
    price_out: float = 0.0
    price_cached_in: float | None = None
    """Price of input tokens from the server's prompt cache; None: the usual price."""
    daily_tokens: int | None = None
    daily_cost: float | None = None
    reflection_tokens: int = 100_000
    """Maximum tokens counted for one reflection's own calls, whose usage its producer states."""

    @property
    def is_capped(self) -> bool:
        """Whether any cap is set."""
        return self.daily_tokens is not None or self.daily_cost is not None

    def cost(self, used: Tokens) -> float:
        """Return the cost of tokens."""
        cached_in = self.price_in if self.price_cached_in is None else self.price_cached_in
        cached = min(used.cached_tokens, used.tokens_in)
        read = (used.tokens_in - cached) * self.price_in + cached * cached_in
        return (read + used.tokens_out * self.price_out) / MILLION

    def or_recorded(self, spend: Spend) -> "SpendPolicy":
        """Return this policy; without a cap of its own, with the last cap recorded in a snapshot."""
        if self.is_capped:
            return self
        return replace(self, daily_tokens=spend.cap_tokens, daily_cost=spend.cap_cost)


UNCAPPED = SpendPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Why a playbook's next batch waits, and until when."""

    reason: str
    until_ms: int
    remedy: str = "a higher cap (COMBEE_DAILY_TOKENS, COMBEE_DAILY_COST)"
    """What lets it go on at once."""


def bounded(usage: Usage, most: int) -> Usage:
    """Return the usage stated by a reflection, every figure between 0 and ``most``."""
    if all(0 <= figure <= most for figure in vars(usage).values()):
        return usage
    return Usage(**{name: min(max(getattr(usage, name), 0), most) for name in Usage.model_fields})


def total(usages: Iterable[Usage]) -> Usage:
    """Return a sum that always fits a message, whatever its parts."""
    sums = dict.fromkeys(Usage.model_fields, 0)
    for usage in usages:
        for name, figure in vars(usage).items():
            if figure > 0:
                sums[name] = min(sums[name] + figure, MOST)
    return Usage(**sums)


def today(spend: Spend, now_ms: int) -> Spend:
    """Return the spend of the current day; a clock that steps back does not return to yesterday."""
    day = max(spend.day, now_ms // DAY_MS)
    return spend if spend.day == day else spend.model_copy(update={"day": day, "tokens": 0, "cost": 0.0})


def after_batch(
    spend: Spend, usages: Iterable[Usage], *, reflections: int, now_ms: int, policy: SpendPolicy
) -> Spend:
    """Return the spend after a batch was published; it counts on the day of its version."""
    before, used = today(spend, now_ms), total(usages)
    tokens = used.tokens_in + used.tokens_out
    cost = policy.cost(used)
    per_reflection = (
        {"tokens_each": tokens / reflections, "cost_each": cost / reflections} if reflections else {}
    )
    return before.model_copy(
        update={
            "tokens": min(before.tokens + tokens, MOST),
            "cost": before.cost + cost,
            "cap_tokens": policy.daily_tokens,
            "cap_cost": policy.daily_cost,
            # A batch without a reply predicts nothing about the next one.
            **(per_reflection if tokens else {}),
        }
    )


def at_once(spend: Spend, policy: SpendPolicy, limit: int) -> int:
    """Return how many batches may be in flight: one under a cap, until the cost of a batch is known."""
    return 1 if policy.is_capped and not spend.tokens_each else limit


@dataclass(frozen=True, slots=True, kw_only=True)
class LineSpend:
    """Spend and batches in flight of another line under the same cap."""

    spend: Spend
    in_flight: int
    batch_size: int
    paused: PauseOrder | None = None


def pause(
    spend: Spend,
    policy: SpendPolicy,
    *,
    in_flight: int,
    batch_size: int,
    now_ms: int,
    others: Sequence[LineSpend] = (),
) -> Pause | None:
    """Return why the next batch must wait for the next day; None if it may start.

    Batches in flight and the next one are counted in advance, as full batches at the last one's tokens per
    reflection. The first batch of a day always starts; otherwise a cap below one batch would stop everything. A
    playbook and its branches (``others``) share one cap.
    """
    now_ms = max(now_ms, *(known.day * DAY_MS for known in (spend, *(other.spend for other in others))))
    spent = [today(spend, now_ms), *(today(other.spend, now_ms) for other in others)]
    coming = [(in_flight + 1) * batch_size, *(other.in_flight * other.batch_size for other in others)]
    in_flight += sum(other.in_flight for other in others)
    if not (in_flight or any(line.tokens or line.cost for line in spent)):
        return None
    tokens, cost = sum(line.tokens for line in spent), sum(line.cost for line in spent)
    lines = list(zip(coming, spent, strict=True))
    tokens_ahead = sum(count * line.tokens_each for count, line in lines)
    cost_ahead = sum(count * line.cost_each for count, line in lines)
    measured = (
        ("{:,.0f} of {:,.0f} tokens", tokens, tokens_ahead, policy.daily_tokens),
        ("{:,.4f} of {:,.4f} in money", cost, cost_ahead, policy.daily_cost),
    )
    for words, sofar, ahead, cap in measured:
        if cap is not None and (sofar >= cap or sofar + ahead > cap):
            ongoing = f"{in_flight} in flight and " if in_flight else ""
            reason = (
                f"{words.format(sofar, cap)} spent today; {ongoing}a batch of {batch_size} would take about"
            )
            amount = f"{ahead:,.0f}" if isinstance(cap, int) else f"{ahead:,.4f}"
            return Pause(reason=f"{reason} {amount}", until_ms=(spent[0].day + 1) * DAY_MS)
    return None
