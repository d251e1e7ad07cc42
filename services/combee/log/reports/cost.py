"""What learning costs: today with its cap, over all versions, by day, and for a lesson; pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypedDict

from combee.adapters.clock import moment
from combee.core.log.live.values import LivePlaybook
from combee.core.playbook.side_by_side import Today
from combee_schemas.base import DAY_MS, NOTHING_SPENT, Value
from combee_schemas.playbook import Playbook, Spend


class Amount(Value):
    """Tokens and money."""

    tokens: int
    cost: float

    @classmethod
    def of(cls, spend: Spend) -> "Amount":
        """Return the spending of a day."""
        return cls(tokens=spend.tokens, cost=round(spend.cost, 6))


class SpendReport(Value):
    """A line's spending today, and its cap."""

    day: str
    tokens: int
    cost: float
    cap_tokens: int | None
    cap_cost: float | None
    together: Amount | None = None
    """Of all lines under the cap; None: it is the only line."""

    @property
    def text(self) -> str:
        """The same in a few words."""
        cap = "" if self.cap_tokens is None else f" of {self.cap_tokens:,}"
        money = "" if self.cap_cost is None else f" of {self.cap_cost:,.2f}"
        cost = f"; {self.cost:,.2f}{money} in money" if self.cost or money else ""
        together = f" ({self.together.tokens:,} on all lines)" if self.together else ""
        return f"{self.tokens:,}{cap}{cost}{together}"


class PauseReport(Value):
    """Why a line's next batch waits, and until when."""

    reason: str
    until_ms: int
    remedy: str


class TodayFields(TypedDict):
    """The fields of reports on a line as it stands today."""

    spend: SpendReport
    paused: PauseReport | None
    in_flight: int


def today_fields(today: Today) -> TodayFields:
    """Return a line's spending today, its pause, and the number of its batches in flight."""
    spend = SpendReport(
        day=day_text(today.spend.day),
        **dict(Amount.of(today.spend)),
        cap_tokens=today.cap.daily_tokens,
        cap_cost=today.cap.daily_cost,
        together=Amount.of(today.together) if today.together else None,
    )
    why = today.paused
    paused = PauseReport(reason=why.reason, until_ms=why.until_ms, remedy=why.remedy) if why else None
    return {"spend": spend, "paused": paused, "in_flight": today.own.in_flight}


def pause_texts(paused: Mapping[str, PauseReport | None]) -> list[str]:
    """Return a line for each playbook or branch that is paused."""
    return [
        f"paused: {name} until {moment(why.until_ms)} UTC: {why.reason}; it continues by itself"
        f" then, or at once with {why.remedy}"
        for name, why in paused.items()
        if why
    ]


def day_text(day: int) -> str:
    """Return a day's date."""
    return moment(day * DAY_MS)[:10]


# ---- over all versions


class DayReport(Amount):
    """Tokens and money of one day."""

    day: str


class CostReport(Value):
    """What the versions of playbooks took."""

    name: str
    batches: int
    reflections: int
    model_calls: int
    tokens: dict[str, int]
    """``in``, the part of it that was ``cached``, and ``out``."""
    tokens_per_reflection: float | None
    """None: there were no reflections."""
    model_seconds: float
    cost: float
    days: tuple[DayReport, ...]


def cost_report(name: str, histories: Iterable[Iterable[Playbook]]) -> CostReport:
    """Return the cost of playbooks' versions; a day's money is the amount recorded by the last version of each."""
    used, reflections, batches = NOTHING_SPENT, 0, 0
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
    return CostReport(
        name=name,
        batches=batches,
        reflections=reflections,
        model_calls=used.calls,
        tokens=used.tokens(),
        tokens_per_reflection=round(tokens / reflections, 1) if reflections else None,
        model_seconds=round(used.seconds, 3),
        cost=round(sum(spend.cost for spend in days.values()), 6),
        days=tuple(DayReport(day=day_text(day), **dict(Amount.of(days[day]))) for day in sorted(days)),
    )


# ---- by day, and for a lesson


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
