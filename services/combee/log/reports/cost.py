"""What learning costs: today with its cap, by day, and for a lesson; pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from combee.adapters.clock import moment
from combee.core.log.live.values import LivePlaybook
from combee.core.playbook.side_by_side import Today
from combee_schemas.base import DAY_MS
from combee_schemas.playbook import Playbook, Spend

RAISE = "it continues by itself then, or at once with a higher cap (COMBEE_DAILY_TOKENS, COMBEE_DAILY_COST)"


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


class DayCost(NamedTuple):
    """What learning cost on one day (UTC), by the dates of versions."""

    day: int
    tokens: int
    cost: float


def by_day(playbooks: Iterable[LivePlaybook], now_ms: int) -> list[DayCost]:
    """Return the cost of each day with a version, and of today, oldest first; branches included.

    Only some of the last versions are known: days before these are known as a whole are left out.
    """
    books, today_is = list(playbooks), now_ms // DAY_MS
    tokens: defaultdict[int, int] = defaultdict(int)
    cost: defaultdict[int, float] = defaultdict(float)
    since = 0
    for book in books:
        if book.versions and book.versions[0].version > 1:
            since = max(since, book.versions[0].at_ms // DAY_MS + 1)
        for version in book.versions:
            tokens[version.at_ms // DAY_MS] += version.tokens
            cost[version.at_ms // DAY_MS] += version.cost
    # Today's cost is recorded with each version, and needs no other.
    tokens[today_is] = sum(book.spend_tokens for book in books)
    cost[today_is] = sum(book.spend_cost for book in books)
    return [DayCost(day, tokens[day], cost[day]) for day in sorted(tokens) if since <= day or day == today_is]


class LessonCost(NamedTuple):
    """What the known versions cost, and how many of the lessons that they added are still there."""

    lessons: int
    tokens: int
    cost: float


def of_lessons(playbooks: Iterable[LivePlaybook], latest: Callable[[str], Playbook]) -> LessonCost:
    """Return what the lessons of these playbooks cost."""
    lessons, tokens, cost = 0, 0, 0.0
    for book in playbooks:
        if not book.versions:
            continue
        first = book.versions[0].version
        lessons += sum(entry.created_version >= first for entry in latest(book.name).entries)
        tokens += sum(version.tokens for version in book.versions)
        cost += sum(version.cost for version in book.versions)
    return LessonCost(lessons, tokens, cost)


def cost_texts(days: Iterable[DayCost], lessons: LessonCost, *, is_priced: bool) -> dict[str, str]:
    """Return today's cost, that of the day before with a cost, and that of a lesson, each by its name."""
    *before, now = days
    texts = {"today": _amount_text(now.tokens, now.cost, is_priced=is_priced)}
    spent = [day for day in before if day.tokens]
    if spent:
        texts[day_text(spent[-1].day)] = _amount_text(spent[-1].tokens, spent[-1].cost, is_priced=is_priced)
    if lessons.lessons:
        each = _amount_text(
            round(lessons.tokens / lessons.lessons), lessons.cost / lessons.lessons, is_priced=is_priced
        )
        texts["a lesson"] = f"{each}, on average of {lessons.lessons}"
    return texts


def _amount_text(tokens: int, cost: float, *, is_priced: bool) -> str:
    """Return tokens, and money with two significant digits where it is little."""
    money = f"{cost:,.2f}" if not cost or cost >= 1 else f"{cost:.2g}"
    return f"{tokens:,} tokens, {money} in money" if is_priced else f"{tokens:,} tokens"
