"""The cost of learning by playbook, tenant and day, and today's spending with its cap; pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from combee.adapters.clock import moment
from combee.core.playbook.side_by_side import Today
from combee_schemas.base import DAY_MS, Usage
from combee_schemas.playbook import Playbook, Spend

RAISE = "it continues by itself then, or at once with a higher cap (COMBEE_DAILY_TOKENS, COMBEE_DAILY_COST)"


def cost_row(name: str, histories: Iterable[Iterable[Playbook]]) -> dict[str, Any]:
    """Return the cost of playbooks' versions; a day's money is the amount recorded by the last version of each."""
    used, reflections, batches = Usage(), 0, 0
    days: dict[int, Spend] = {}
    for made in histories:
        spent: dict[int, Spend] = {}
        for version in made:
            if version.batch is not None:
                used += version.usage + version.batch.plan.reflect_usage
                reflections += version.reflections
                batches += 1
                spent[version.spend.day] = version.spend
        for day, spend in spent.items():
            known = days.get(day, Spend(day=day))
            days[day] = Spend(day=day, tokens=known.tokens + spend.tokens, cost=known.cost + spend.cost)
    tokens = used.tokens_in + used.tokens_out
    return {
        "name": name,
        "batches": batches,
        "reflections": reflections,
        "model_calls": used.calls,
        "tokens": used.tokens(),
        "tokens_per_reflection": round(tokens / reflections, 1) if reflections else None,
        "model_seconds": round(used.seconds, 3),
        "cost": round(sum(spend.cost for spend in days.values()), 6),
        "days": [{"day": _day(day), **_amount(days[day])} for day in sorted(days)],
    }


def _amount(spend: Spend) -> dict[str, Any]:
    return {"tokens": spend.tokens, "cost": round(spend.cost, 6)}


def _day(day: int) -> str:
    return moment(day * DAY_MS)[:10]


def today_row(today: Today) -> dict[str, Any]:
    """Return the fields ``spend`` and ``paused`` of one line in ``status --json``."""
    caps = {"cap_tokens": today.cap.daily_tokens, "cap_cost": today.cap.daily_cost}
    together = {"together": _amount(today.together)} if today.together else {}
    paused = today.paused
    return {
        "spend": {"day": _day(today.spend.day), **_amount(today.spend), **caps, **together},
        "paused": paused and {"reason": paused.reason, "until_ms": paused.until_ms},
    }


def spend_text(spend: Mapping[str, Any]) -> str:
    """Return today's spending and its cap, in a few words."""
    cap = "" if spend["cap_tokens"] is None else f" of {spend['cap_tokens']:,}"
    money = "" if spend["cap_cost"] is None else f" of {spend['cap_cost']:,.2f}"
    cost = f"; {spend['cost']:,.2f}{money} in money" if spend["cost"] or money else ""
    together = f" ({spend['together']['tokens']:,} on all lines)" if "together" in spend else ""
    return f"{spend['tokens']:,}{cap}{cost}{together}"


def pause_texts(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each playbook or branch that is paused."""
    paused = ((row["name"], row["paused"]) for row in rows if row["paused"])
    return [
        f"paused: {name} until {moment(why['until_ms'])} UTC: {why['reason']}; {RAISE}"
        for name, why in paused
    ]
