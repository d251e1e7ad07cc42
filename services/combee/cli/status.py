"""``combee status``: topics, the services' backlog and all playbooks."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import typer
from rich.table import Table

from combee.adapters.clock import SystemClock, moment
from combee.adapters.ports import Log
from combee.cli.shared.console import clean, output, print_json
from combee.cli.shared.log import brokers, open_log
from combee.cli.shared.options import AsJson, Servers
from combee.cli.shared.settings import deployed_settings
from combee.core.evaluation.outcomes.report import FiguresReport, figures_text
from combee.core.gate.canary_verdict import CanaryReport, canary_text
from combee.core.gate.gate import gates_of
from combee.core.names.tenants import NO_LIMITS, Limits
from combee.core.playbook.probation import counts_text
from combee.core.playbook.retention import percent
from combee.core.playbook.side_by_side import branch_text, in_order
from combee.core.playbook.spend import UNCAPPED, SpendPolicy
from combee.core.playbook.versions import empty
from combee.log.history import all_labels
from combee.log.inspection.branches import lines_today
from combee.log.inspection.dead_letters import held_back
from combee.log.inspection.lag import INPUTS, backlog
from combee.log.inspection.outcomes import canaries, outcomes_by_line
from combee.log.reports.controller import size_text
from combee.log.reports.cost import pause_texts, spend_text
from combee.log.reports.gate import GateReport
from combee.log.reports.status import status_row
from combee.process.settings.loading import Settings
from combee_schemas import topics


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee status --json")(status)


def status(*, bootstrap_servers: Servers = None, as_json: AsJson = False) -> None:
    """Show topics, the backlog of every service, all playbooks."""
    state = asyncio.run(_status(deployed_settings(bootstrap_servers=bootstrap_servers)))
    if as_json:
        print_json(state)
    else:
        _print(state)


async def _status(settings: Settings) -> dict[str, Any]:
    async with open_log(settings) as (log, servers):
        broker = await brokers(settings, servers)
        spending = settings.spend.caps()
        limits = settings.tenants.limits()
        budget, size = settings.playbook.playbook_tokens, settings.batch.batch_size
        return {"broker": broker, **await log_status(log, size, spending, limits, budget_tokens=budget)}


async def log_status(
    log: Log,
    batch_size: int,
    spending: SpendPolicy = UNCAPPED,
    limits: Mapping[str, Limits] = NO_LIMITS,
    *,
    budget_tokens: int = 0,
) -> dict[str, Any]:
    """Return the status, read from the log alone; ``budget_tokens``: the configured token budget."""
    services: dict[str, dict[str, object]] = {}
    for group in INPUTS:
        group_lag = await backlog(log, group, SystemClock())
        services[group] = {"lag": group_lag.lag, "oldest_uncommitted_s": group_lag.oldest_uncommitted_s}
    return {
        "topics": await _topics(log),
        "services": services,
        "playbooks": await _playbooks(log, batch_size, spending, limits, budget_tokens),
        "held_back": [hold.model_dump(mode="json") for hold in await held_back(log, SystemClock())],
    }


async def _topics(log: Log) -> dict[str, dict[str, int]]:
    sizes: dict[str, dict[str, int]] = {}
    for topic in topics.TOPICS:
        beginnings, ends = await log.beginnings(topic.name), await log.ends(topic.name)
        records = sum(ends.values()) - sum(beginnings.values())
        sizes[topic.name] = {"records": records, "partitions": len(ends)}
    return sizes


async def _playbooks(
    log: Log, batch_size: int, spending: SpendPolicy, limits: Mapping[str, Limits], budget_tokens: int
) -> list[dict[str, Any]]:
    now_ms = SystemClock().now_ms()
    known = await lines_today(log, now_ms, batch_size, spending, limits)
    lines = {name: known.snapshots.get(name) or empty(name) for name in in_order(known.today)}
    outcomes, gated, tried = (
        await outcomes_by_line(log),
        gates_of(await all_labels(log)),
        await canaries(log, now_ms),
    )
    return [
        status_row(
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
    ]


def _print(state: dict[str, Any]) -> None:
    console = output()
    console.print(f"broker: {state['broker']}")
    services = Table("service", "lag (offsets)", "oldest uncommitted (s)", box=None, title_justify="left")
    for name, facts in state["services"].items():
        oldest = facts["oldest_uncommitted_s"]
        services.add_row(name, str(facts["lag"]), "" if oldest is None else f"{oldest:.1f}")
    sizes = Table("topic", "offsets", "partitions", box=None)
    for name, facts in state["topics"].items():
        sizes.add_row(name, str(facts["records"]), str(facts["partitions"]))
    playbooks = Table(
        *(
            "playbook",
            "version",
            "made by",
            "entries",
            "batch size",
            "policy",
            "batches in flight",
            "tokens today",
        ),
        *("retention", "omitted"),
        box=None,
    )
    for row in state["playbooks"]:
        playbooks.add_row(
            *(str(row[name]) for name in ("name", "version", "made_by")),
            counts_text(row["entries"], row["proposed"]),
            str(row["batch_size"]),
            _policy_text(row),
            str(row["in_flight"]),
            spend_text(row["spend"]),
            *(percent(row[name]) for name in ("retention", "omitted")),
        )
    for table in (services, sizes, playbooks):
        console.print()
        console.print(table)
    for row in state["playbooks"]:
        for text in _texts(row):
            console.print(f"{row['name']}: {clean(text)}", markup=False, soft_wrap=True)
    for warning in _warnings(state):
        console.print(warning, style="yellow", soft_wrap=True)


def _policy_text(row: Mapping[str, Any]) -> str:
    """Return the origin of a line's batch size in ``status --json``."""
    if row["branch"] and "batch_size" in row["branch"]["settings"]:
        return "branch"
    return row["sizing"]["policy"] if row["sizing"] else "start value"


def _warnings(state: Mapping[str, Any]) -> Iterator[str]:
    """Yield warnings: held-back or paused playbooks, and those of the audit."""
    for hold in state["held_back"]:
        what, until = hold["playbook"] or "unreadable records", moment(hold["until_ms"])
        yield f"{hold['service']} holds back {what} until {until} UTC: too many dead letters; see 'combee dlq list'"
    yield from pause_texts(state["playbooks"])
    for row in state["playbooks"]:
        for text in row["warnings"].values():
            yield f"warning: {row['name']}: {text}"


def _texts(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield further details of a playbook or branch: posture, fork, token budget, batch size, runs, gate, canary."""
    if row["trust"]:
        yield row["trust"]
    if row["branch"]:
        yield f"forked from {branch_text(row['branch'])}"
    if row["budget"]:
        yield row["budget"]
    if row["sizing"] and _policy_text(row) not in {"configured", "branch"}:
        yield f"{size_text({**row, **row['sizing']})}: {row['sizing']['reason']}"
    if runs := row["outcomes"]:
        yield f"version {runs['version']}: {figures_text(FiguresReport.model_validate(runs))}"
    if row["gate"]:
        yield GateReport.model_validate(row["gate"]).text
    if row["canary"]:
        yield canary_text(CanaryReport.model_validate(row["canary"]))
