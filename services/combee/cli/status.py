"""``combee status``: what is in the topics, how far the services are, which playbooks there are."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import typer
from rich.table import Table

from combee.cli.cost import pause_lines, spend_row, spend_text
from combee.cli.shared.console import clean, output, print_json
from combee.cli.shared.log import brokers, open_log
from combee.cli.shared.options import AsJson, Servers
from combee.clock import SystemClock, moment
from combee.core.gate.canary_verdict import CanaryReport, canary_text
from combee.core.outcomes.report import FiguresReport, figures_text, outcomes_report
from combee.core.playbook.probation import counts, counts_text
from combee.core.playbook.retention import in_playbook, is_losing, losing, percent
from combee.core.playbook.side_by_side import branch_row, branch_text, in_order
from combee.core.playbook.spend import UNCAPPED, SpendPolicy
from combee.core.playbook.versions import empty, made_by
from combee.core.tenants import NO_LIMITS, Limits, Tenants
from combee.history import newest_snapshots
from combee.inspection.batches import newest_batches
from combee.inspection.branches import batch_sizes, under_caps
from combee.inspection.dead_letters import held_back
from combee.inspection.gates import gate_document, gate_text, gates
from combee.inspection.lag import INPUTS, backlog
from combee.inspection.outcomes import canaries, outcomes_by_line
from combee.ports import Log
from combee.settings.loading import Settings, load_settings
from combee_schemas import topics
from combee_schemas.base import playbook_of
from combee_schemas.outcome import OutcomeStatistics

SIZING = {"policy", "phase", "reason", "decided_at_ms"}
"""Of a decision, beside the size."""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee status --json")(status)


def status(*, bootstrap_servers: Servers = None, as_json: AsJson = False) -> None:
    """Show topics, the backlog of every service, and all playbooks."""
    state = asyncio.run(_status(load_settings(bootstrap_servers=bootstrap_servers)))
    if as_json:
        print_json(state)
    else:
        _print(state)


async def _status(settings: Settings) -> dict[str, Any]:
    async with open_log(settings) as (log, servers):
        broker = await brokers(settings, servers)
        spending = settings.spend.caps()
        limits = settings.tenants.limits()
        return {"broker": broker, **await log_status(log, settings.batch.batch_size, spending, limits)}


async def log_status(
    log: Log,
    batch_size: int,
    spending: SpendPolicy = UNCAPPED,
    limits: Mapping[str, Limits] = NO_LIMITS,
) -> dict[str, Any]:
    """Return everything that the log itself can say."""
    services: dict[str, dict[str, object]] = {}
    for group in INPUTS:
        group_lag = await backlog(log, group, SystemClock())
        services[group] = {"lag": group_lag.lag, "oldest_uncommitted_s": group_lag.oldest_uncommitted_s}
    return {
        "topics": await _topics(log),
        "services": services,
        "playbooks": await _playbooks(log, batch_size, spending, limits),
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
    log: Log, default_size: int, spending: SpendPolicy, limits: Mapping[str, Limits]
) -> list[dict[str, object]]:
    playbooks = await newest_snapshots(log)
    tenants = Tenants.of(limits, playbooks.values())
    decisions = await batch_sizes(log)
    newest_batch = await newest_batches(log)
    playbooks |= {name: empty(name) for name in newest_batch.keys() - playbooks.keys()}
    outcomes, gated = await outcomes_by_line(log), await gates(log)
    tried = await canaries(log, SystemClock().now_ms())
    spent = under_caps(playbooks, newest_batch, decisions, default_size)
    rows: list[dict[str, object]] = []
    for name in in_order(playbooks):
        playbook, decided, lines = playbooks[name], decisions.get(name), spent[playbook_of(name)]
        line = lines[name]
        if playbook.origin == "delete" and not line.in_flight:
            continue
        now_ms, audit = SystemClock().now_ms(), in_playbook(playbook.batch)
        rows.append(
            {
                "name": name,
                "version": playbook.version,
                "made_by": made_by(playbook),
                "branch": branch_row(playbook.branch, playbooks.get(playbook_of(name))),
                **counts(playbook),
                "batch_size": line.batch_size,
                "sizing": decided.model_dump(include=SIZING) if decided else None,
                "in_flight": line.in_flight,
                **spend_row(name, lines, spending, tenants, now_ms=now_ms),
                "retention": playbook.retention_recent[-1] if playbook.retention_recent else None,
                "lost": playbook.lost_recent[-1] if playbook.lost_recent else None,
                "losing": is_losing(playbook),
                "audit": audit.model_dump() if audit else None,
                "outcomes": _outcomes(outcomes.get(name), playbook.version),
                "gate": gate_document(gated.get(name)),
                "canary": _canary(tried.get(name)),
            }
        )
    return rows


def _outcomes(statistics: OutcomeStatistics | None, newest: int) -> dict[str, Any] | None:
    """Return how the runs went that were shown the newest version that any was shown."""
    versions = outcomes_report("", statistics, newest).versions
    return versions[-1].model_dump(mode="json") if versions else None


def _print(state: dict[str, Any]) -> None:
    console = output()
    console.print(f"broker: {state['broker']}")
    services = Table("service", "lag (records)", "oldest uncommitted (s)", box=None, title_justify="left")
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
        *("retention", "lost"),
        box=None,
    )
    for row in state["playbooks"]:
        playbooks.add_row(
            *(str(row[name]) for name in ("name", "version", "made_by")),
            counts_text(row["entries"], row["proposed"]),
            str(row["batch_size"]),
            _policy(row),
            str(row["in_flight"]),
            spend_text(row["spend"]),
            *(percent(row[name]) for name in ("retention", "lost")),
        )
    for table in (services, sizes, playbooks):
        console.print()
        console.print(table)
    for hold in state["held_back"]:
        what, until = hold["playbook"] or "what cannot be used", moment(hold["until_ms"])
        text = f"{hold['service']} holds back {what} until {until} UTC: too many dead letters; see 'combee dlq list'"
        console.print(text, style="yellow", soft_wrap=True)
    rows = state["playbooks"]
    by_kind = (_branch_lines, _decision_lines, _outcome_lines, _gate_lines, _canary_lines)
    for line in (line for lines in by_kind for line in lines(rows)):
        console.print(line, markup=False, soft_wrap=True)
    for line in pause_lines(state["playbooks"]):
        console.print(line, style="yellow", soft_wrap=True)
    for row in state["playbooks"]:
        if row["losing"]:
            text = f"warning: {row['name']}: {losing(row['lost'])}"
            console.print(text, style="yellow", soft_wrap=True)


def _policy(row: Mapping[str, Any]) -> str:
    """Return who says how large batches are."""
    if row["branch"] and "batch_size" in row["branch"]["settings"]:
        return "branch"
    return row["sizing"]["policy"] if row["sizing"] else "start value"


def _branch_lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield what each branch does otherwise than its playbook."""
    for row in rows:
        if row["branch"]:
            yield f"{row['name']}: forked from {branch_text(row['branch'])}"


def _outcome_lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield how the runs of each newest version went."""
    for row in rows:
        if outcomes := row["outcomes"]:
            text = figures_text(FiguresReport.model_validate(outcomes))
            yield f"{row['name']}: version {outcomes['version']}: {clean(text)}"


def _gate_lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield what agents read of each gated playbook, and what waits."""
    for row in rows:
        if row["gate"]:
            yield f"{row['name']}: {gate_text(row['gate'])}"


def _canary(report: CanaryReport | None) -> dict[str, Any] | None:
    """Return how far a canary is; None: there is none."""
    return report.model_dump(mode="json") if report else None


def _canary_lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield how far each canary is, and what it waits for."""
    for row in rows:
        if row["canary"]:
            yield f"{row['name']}: {canary_text(CanaryReport.model_validate(row['canary']))}"


def _decision_lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield why each batch size that was chosen is what it is."""
    for row in rows:
        sizing = row["sizing"]
        if sizing and sizing["policy"] != "configured" and _policy(row) != "branch":
            chosen = f"batches of {row['batch_size']} ({sizing['policy']}, {sizing['phase']})"
            yield f"{row['name']}: {chosen}: {clean(sizing['reason'])}"
