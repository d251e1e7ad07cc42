"""Today's spending with its cap; pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from combee.adapters.clock import moment
from combee.core.playbook.side_by_side import Today
from combee_schemas.base import DAY_MS
from combee_schemas.playbook import Spend


def amount(spend: Spend) -> dict[str, Any]:
    """Return a day's tokens and money."""
    return {"tokens": spend.tokens, "cost": round(spend.cost, 6)}


def day_text(day: int) -> str:
    """Return a day's date."""
    return moment(day * DAY_MS)[:10]


def today_row(today: Today) -> dict[str, Any]:
    """Return the fields ``spend`` and ``paused`` of one line in ``status --json``."""
    caps = {"cap_tokens": today.cap.daily_tokens, "cap_cost": today.cap.daily_cost}
    together = {"together": amount(today.together)} if today.together else {}
    paused = today.paused
    return {
        "spend": {"day": day_text(today.spend.day), **amount(today.spend), **caps, **together},
        "paused": paused and {"reason": paused.reason, "until_ms": paused.until_ms, "remedy": paused.remedy},
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
        f"paused: {name} until {moment(why['until_ms'])} UTC: {why['reason']}; it continues by itself"
        f" then, or at once with {why['remedy']}"
        for name, why in paused
    ]
