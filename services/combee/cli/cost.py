"""``combee cost``: what playbooks took to learn, in calls, tokens and money; and what was spent today."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from combee.cli.shared.console import output, print_json, reading
from combee.cli.shared.log import open_log
from combee.cli.shared.options import AsJson, MaybeName, Servers
from combee.clock import moment
from combee.core.playbook.side_by_side import in_order, pause_of, recorded_cap
from combee.core.playbook.spend import OtherLine, SpendPolicy, today
from combee.core.tenants import Tenants, tenant_of
from combee.history import partition_of
from combee.ports import FatalError, Log, TopicPartition
from combee.settings.loading import Settings, load_settings
from combee_schemas import topics
from combee_schemas.base import DAY_MS, Usage
from combee_schemas.playbook import Playbook
from combee_schemas.topics import key_of

TOLD_EVERY = 100
RAISE = "it goes on by itself then, or at once with a higher cap (COMBEE_DAILY_TOKENS, COMBEE_DAILY_COST)"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee cost support/refunds --json")(cost)


def cost(
    name: MaybeName = None,
    *,
    by: Annotated[Literal["playbook", "tenant"], typer.Option(help="one row for each of these")] = "playbook",
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Sum up the model calls behind every version; money at the prices that held when it was spent."""
    if by == "tenant" and name is not None:
        raise typer.BadParameter("--by tenant is about all playbooks: give no name")
    rows = asyncio.run(_cost(load_settings(bootstrap_servers=bootstrap_servers), name))
    if by == "tenant":
        rows = by_tenant(rows)
    if name is not None and not rows:
        raise FatalError(f"{name} has no version yet; 'combee playbook list' names those that have")
    if as_json:
        print_json(rows)
    else:
        _print(rows, by)


async def _cost(settings: Settings, name: str | None) -> list[dict[str, Any]]:
    async with open_log(settings) as (log, _):
        histories = await _histories(log, name)
        return [cost_row(line, histories[line]) for line in in_order(histories)]


async def _histories(log: Log, name: str | None) -> dict[str, list[Playbook]]:
    """Return all versions by playbook, without their entries: they may be many."""
    topic = topics.HISTORY.name
    ends, first = await log.ends(topic), await log.beginnings(topic)
    numbers = [(await partition_of(log, topics.HISTORY, name)).partition] if name else sorted(ends)
    total, read = sum(ends[number] - first[number] for number in numbers), 0
    histories: dict[str, list[Playbook]] = {}
    with reading() as show:
        for number in numbers:
            async for record in log.read(TopicPartition(topic=topic, partition=number), 0, ends[number]):
                read += 1
                if read % TOLD_EVERY == 0:
                    show(topic, read, total)
                for version in topics.HISTORY.under(key_of(record), [record]):
                    if name in {None, version.name}:
                        bare = version.model_copy(update={"entries": (), "changes": ()})
                        histories.setdefault(version.name, []).append(bare)
    return histories


def cost_row(name: str, made: Iterable[Playbook]) -> dict[str, Any]:
    """Return what the versions of one playbook took; a day's money is what its last version recorded."""
    used, reflections, batches = Usage(), 0, 0
    days: dict[int, dict[str, Any]] = {}
    for version in made:
        if version.batch is None:
            continue
        used += version.usage + version.batch.plan.reflect_usage
        reflections += version.reflections
        batches += 1
        days[version.spend.day] = {
            "day": moment(version.spend.day * DAY_MS)[:10],
            "tokens": version.spend.tokens,
            "cost": round(version.spend.cost, 6),
        }
    tokens = used.tokens_in + used.tokens_out
    return {
        "name": name,
        "batches": batches,
        "reflections": reflections,
        "model_calls": used.calls,
        "tokens": used.tokens(),
        "tokens_per_reflection": round(tokens / reflections, 1) if reflections else None,
        "model_seconds": round(used.seconds, 3),
        "cost": round(sum(day["cost"] for day in days.values()), 6),
        "days": [days[day] for day in sorted(days)],
    }


def by_tenant(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of playbooks and branches summed up by tenant."""
    tenants: dict[str, dict[str, Any]] = {}
    for row in rows:
        tenant = tenant_of(row["name"])
        tenants[tenant] = _sum(tenants[tenant], row) if tenant in tenants else {**row, "name": tenant}
    for total in tenants.values():
        tokens, reflections = total["tokens"], total["reflections"]
        spent = tokens["in"] + tokens["out"]
        total["tokens_per_reflection"] = round(spent / reflections, 1) if reflections else None
    return [tenants[name] for name in sorted(tenants)]


def _sum(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    counts = ("batches", "reflections", "model_calls", "model_seconds", "cost")
    days: dict[str, dict[str, Any]] = {day["day"]: dict(day) for day in first["days"]}
    for day in second["days"]:
        known = days.setdefault(day["day"], {"day": day["day"], "tokens": 0, "cost": 0.0})
        known["tokens"] += day["tokens"]
        known["cost"] = round(known["cost"] + day["cost"], 6)
    return {
        **first,
        **{count: round(first[count] + second[count], 6) for count in counts},
        "tokens": {kind: number + second["tokens"][kind] for kind, number in first["tokens"].items()},
        "days": [days[day] for day in sorted(days)],
    }


def _print(rows: list[dict[str, Any]], by: str = "playbook") -> None:
    counts = ("batches", "reflections", "model_calls")
    table = Table(
        by, *counts, "tokens in", "of them cached", "tokens out", "per reflection", "money", box=None
    )
    for row in rows:
        tokens = row["tokens_per_reflection"]
        table.add_row(
            row["name"],
            *(f"{row[count]:,}" for count in counts),
            *(f"{count:,}" for count in row["tokens"].values()),
            "" if tokens is None else f"{tokens:,.0f}",
            f"{row['cost']:,.4f}",
        )
    output().print(table if rows else "nothing was spent yet")
    if rows and not any(row["cost"] for row in rows):
        output().print("money is counted where the model has a price: [prices] in combee.toml")
    for row in rows if len(rows) == 1 else ():
        for day in row["days"]:
            output().print(f"  {day['day']}  {day['tokens']:>14,} tokens  {day['cost']:,.4f}")


# ---- today, for 'combee status'


def spend_row(
    line: str, lines: Mapping[str, OtherLine], policy: SpendPolicy, tenants: Tenants, *, now_ms: int
) -> dict[str, Any]:
    """Return the fields ``spend`` and ``paused`` of one line in ``status --json``; ``lines`` share its cap."""
    spent, policy = today(lines[line].spend, now_ms), recorded_cap(line, lines, policy)
    paused = tenants.pause(tenant_of(line), now_ms) or pause_of(line, lines, policy, now_ms)
    return {
        "spend": {
            "day": moment(spent.day * DAY_MS)[:10],
            "tokens": spent.tokens,
            "cost": round(spent.cost, 6),
            "cap_tokens": policy.daily_tokens,
            "cap_cost": policy.daily_cost,
            **({"together": _together(lines, now_ms)} if len(lines) > 1 else {}),
        },
        "paused": paused and {"reason": paused.reason, "until_ms": paused.until_ms},
    }


def _together(lines: Mapping[str, OtherLine], now_ms: int) -> dict[str, Any]:
    """Return what a playbook and its branches spent today: that is what their cap is about."""
    spent = [today(line.spend, now_ms) for line in lines.values()]
    return {"tokens": sum(line.tokens for line in spent), "cost": round(sum(line.cost for line in spent), 6)}


def spend_text(spend: Mapping[str, Any]) -> str:
    """Return what was spent today beside its cap, in few words."""
    cap = "" if spend["cap_tokens"] is None else f" of {spend['cap_tokens']:,}"
    money = "" if spend["cap_cost"] is None else f" of {spend['cap_cost']:,.2f}"
    cost = f"; {spend['cost']:,.2f}{money} in money" if spend["cost"] or money else ""
    together = f" ({spend['together']['tokens']:,} on all lines)" if "together" in spend else ""
    return f"{spend['tokens']:,}{cap}{cost}{together}"


def pause_lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each playbook or branch that is paused."""
    for row in rows:
        if row["paused"]:
            until = moment(row["paused"]["until_ms"])
            yield f"paused: {row['name']} until {until} UTC: {row['paused']['reason']}; {RAISE}"
