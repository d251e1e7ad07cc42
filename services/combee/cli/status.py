"""``combee status``: topics, the services' backlog and all playbooks."""

import asyncio
from collections.abc import Iterator, Mapping

import typer
from rich.table import Table

from combee.adapters.clock import SystemClock, moment
from combee.adapters.ports import Log
from combee.cli.shared.console import output, print_json
from combee.cli.shared.log import brokers, open_log
from combee.cli.shared.options import AsJson, Servers
from combee.cli.shared.settings import deployed_settings
from combee.core.gate.gate import gates_of
from combee.core.names.tenants import NO_LIMITS, Limits
from combee.core.playbook.retention import percent
from combee.core.playbook.side_by_side import in_order
from combee.core.playbook.spend import UNCAPPED, SpendPolicy
from combee.core.playbook.versions import empty
from combee.core.text.forms import printable
from combee.log.history import all_labels
from combee.log.inspection.branches import lines_today
from combee.log.inspection.dead_letters import held_back
from combee.log.inspection.lag import INPUTS, backlog
from combee.log.inspection.outcomes import canaries, outcomes_by_line
from combee.log.reports.cost import pause_texts
from combee.log.reports.status import LineStatus, line_status
from combee.process.settings.loading import Settings
from combee_schemas import topics
from combee_schemas.base import Value
from combee_schemas.dead_letter import HeldBack


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee status --json")(status)


def status(*, bootstrap_servers: Servers = None, as_json: AsJson = False) -> None:
    """Show topics, the backlog of every service, all playbooks."""
    broker, state = asyncio.run(_status(deployed_settings(bootstrap_servers=bootstrap_servers)))
    if as_json:
        print_json({"broker": broker, **dict(state)})
    else:
        _print(broker, state)


class LogStatus(Value):
    """What the log says of topics, services and playbooks."""

    topics: dict[str, dict[str, int]]
    services: dict[str, dict[str, int | float | None]]
    playbooks: tuple[LineStatus, ...]
    held_back: tuple[HeldBack, ...]


async def _status(settings: Settings) -> tuple[str, LogStatus]:
    async with open_log(settings) as (log, servers):
        broker = await brokers(settings, servers)
        spending = settings.spend.caps()
        limits = settings.tenants.limits()
        budget, size = settings.playbook.playbook_tokens, settings.batch.batch_size
        return broker, await log_status(log, size, spending, limits, budget_tokens=budget)


async def log_status(
    log: Log,
    batch_size: int,
    spending: SpendPolicy = UNCAPPED,
    limits: Mapping[str, Limits] = NO_LIMITS,
    *,
    budget_tokens: int = 0,
) -> LogStatus:
    """Return the status, read from the log alone; ``budget_tokens``: the configured token budget."""
    services: dict[str, dict[str, int | float | None]] = {}
    for group in INPUTS:
        group_lag = await backlog(log, group, SystemClock())
        services[group] = {"lag": group_lag.lag, "oldest_uncommitted_s": group_lag.oldest_uncommitted_s}
    return LogStatus(
        topics=await _topics(log),
        services=services,
        playbooks=await _playbooks(log, batch_size, spending, limits, budget_tokens),
        held_back=tuple(await held_back(log, SystemClock())),
    )


async def _topics(log: Log) -> dict[str, dict[str, int]]:
    sizes: dict[str, dict[str, int]] = {}
    for topic in topics.TOPICS:
        beginnings, ends = await log.beginnings(topic.name), await log.ends(topic.name)
        records = sum(ends.values()) - sum(beginnings.values())
        sizes[topic.name] = {"records": records, "partitions": len(ends)}
    return sizes


async def _playbooks(
    log: Log, batch_size: int, spending: SpendPolicy, limits: Mapping[str, Limits], budget_tokens: int
) -> tuple[LineStatus, ...]:
    now_ms = SystemClock().now_ms()
    known = await lines_today(log, now_ms, batch_size, spending, limits)
    lines = {name: known.snapshots.get(name) or empty(name) for name in in_order(known.today)}
    outcomes, gated, tried = (
        await outcomes_by_line(log),
        gates_of(await all_labels(log)),
        await canaries(log, now_ms),
    )
    return tuple(
        line_status(
            line,
            lines,
            known.today[name],
            known.decided.get(name),
            budget_tokens=budget_tokens,
            outcomes=outcomes.get(name),
            gate=gated.get(name),
            canary=tried.get(name),
        )
        for name, line in lines.items()
        if line.origin != "delete" or known.today[name].own.in_flight
    )


def _print(broker: str, state: LogStatus) -> None:
    console = output()
    console.print(f"broker: {broker}")
    services = Table("service", "lag (offsets)", "oldest uncommitted (s)", box=None, title_justify="left")
    for name, facts in state.services.items():
        oldest = facts["oldest_uncommitted_s"]
        services.add_row(name, str(facts["lag"]), "" if oldest is None else f"{oldest:.1f}")
    sizes = Table("topic", "offsets", "partitions", box=None)
    for name, size in state.topics.items():
        sizes.add_row(name, str(size["records"]), str(size["partitions"]))
    playbooks = Table("playbook", "version", "made by", "entries", "batch size", "policy", box=None)
    for title in ("batches in flight", "tokens today", "retention", "omitted"):
        playbooks.add_column(title)
    for line in state.playbooks:
        playbooks.add_row(
            *(line.name, str(line.version), line.made_by, line.entries_text),
            *(str(line.batch_size), line.policy, str(line.in_flight), line.spend.text),
            *(percent(line.retention), percent(line.omitted)),
        )
    for table in (services, sizes, playbooks):
        console.print()
        console.print(table)
    for line in state.playbooks:
        for text in line.texts:
            console.print(f"{line.name}: {printable(text)}", markup=False, soft_wrap=True)
    for warning in _warnings(state):
        console.print(warning, style="yellow", soft_wrap=True)


def _warnings(state: LogStatus) -> Iterator[str]:
    """Yield warnings: held-back or paused playbooks, and those of the audit."""
    for hold in state.held_back:
        what, until = hold.playbook or "unreadable records", moment(hold.until_ms)
        yield f"{hold.service} holds back {what} until {until} UTC: too many dead letters; see 'combee dlq list'"
    yield from pause_texts({line.name: line.paused for line in state.playbooks})
    for line in state.playbooks:
        for text in line.warnings.values():
            yield f"warning: {line.name}: {text}"
