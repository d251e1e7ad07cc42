"""What playbooks spent today, their caps, and which of them are paused: for people and for programs."""

from collections.abc import Iterator, Mapping
from typing import Any

from combee.clock import moment
from combee.core.playbook.spend import DAY_MS, SpendPolicy, pause, today
from combee_schemas.playbook import Playbook

RAISE = "it goes on by itself then, or at once with a higher cap (COMBEE_DAILY_TOKENS, COMBEE_DAILY_COST)"


def spend_row(
    playbook: Playbook, policy: SpendPolicy, *, in_flight: int, batch_size: int, now_ms: int
) -> dict[str, Any]:
    """Return the fields ``spend`` and ``paused`` of one playbook in ``status --json``."""
    spent, policy = today(playbook.spend, now_ms), policy.or_recorded(playbook.spend)
    found = pause(spent, policy, in_flight=in_flight, batch_size=batch_size, now_ms=now_ms)
    return {
        "spend": {
            "day": moment(spent.day * DAY_MS)[:10],
            "tokens": spent.tokens,
            "cost": round(spent.cost, 6),
            "cap_tokens": policy.daily_tokens,
            "cap_cost": policy.daily_cost,
        },
        "paused": found and {"reason": found.reason, "until_ms": found.until_ms},
    }


def spend_text(spend: Mapping[str, Any]) -> str:
    """Return what was spent today beside its cap, in few words."""
    cap = "" if spend["cap_tokens"] is None else f" of {spend['cap_tokens']:,}"
    money = "" if spend["cap_cost"] is None else f" of {spend['cap_cost']:,.2f}"
    cost = f"; {spend['cost']:,.2f}{money} in money" if spend["cost"] or money else ""
    return f"{spend['tokens']:,}{cap}{cost}"


def pause_lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each paused playbook."""
    for row in rows:
        if row["paused"]:
            until = moment(row["paused"]["until_ms"])
            yield f"paused: {row['name']} until {until} UTC: {row['paused']['reason']}; {RAISE}"
