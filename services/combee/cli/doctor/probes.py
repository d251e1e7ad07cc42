"""Probes of ``combee doctor`` for broker and model; each has a deadline."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from combee.adapters.clock import SystemClock
from combee.adapters.kafka import KafkaAdmin, KafkaLog, Reachability
from combee.adapters.kafka.connection import Connection
from combee.adapters.kafka.probe import (
    abilities,
    longest_transaction_s,
    open_transactions,
    replicas,
    skew,
)
from combee.adapters.ports import CombeeError, Log
from combee.assembly import backends
from combee.cli.shared.log import lines_now
from combee.core.batching.limits import SHUFFLE_LIMITS
from combee.core.log.diagnosis import Check, cluster, flow, unanswered
from combee.core.log.diagnosis import surroundings as around
from combee.core.methods import ace
from combee.core.playbook.side_by_side import in_order
from combee.core.text.redact import redacted
from combee.log.history import newest_playbooks, newest_snapshots
from combee.log.inspection.batches import unpublished
from combee.log.inspection.dead_letters import recent_letters
from combee.log.inspection.lag import INPUTS, backlog
from combee.process.settings.loading import Settings
from combee.process.settings.model import ModelSettings
from combee_schemas import topics
from combee_schemas.base import DAY_MS
from combee_schemas.trace import Trace

if TYPE_CHECKING:
    from combee.adapters.openai.probe import Form, Tried

GRACE_S = 1.0
LAST_LETTERS = 2000
"""Maximum number of dead-letter records read, as there may be a flood of them."""
OURS = frozenset(topic.name for topic in topics.TOPICS)
RUN_AGAIN = "fix the reported problem, then run 'combee doctor' again"
INNER_SHARE = 0.8
"""Share of a check's time given to the probed call, whose own error says more than the check's deadline."""
OPENAI = "combee.adapters.openai"
"""Its library takes as long to load as all checks of the broker: it is loaded in a thread, while these wait."""
NAMES: Mapping["Form", around.Form] = {
    "json_schema": "JSON schema",
    "json_object": "JSON mode",
    "text": "plain text",
}

TRIAL = Trace(
    trace_id="doctor",
    playbook="doctor",
    task="What is 6 times 7?",
    answer="36",
    feedback="The answer is wrong, 42 was wanted.",
)
"""A run to reflect on, which tries the model at its real task."""

Probe = Callable[[], Awaitable[Sequence[Check]]]


async def within(timeout_s: float, name: str, probe: Probe, *, remedy: str = RUN_AGAIN) -> list[Check]:
    """Return a probe's checks; a timeout or an error becomes a failed check."""
    task = asyncio.ensure_future(probe())
    done, _ = await asyncio.wait({task}, timeout=timeout_s)
    if not done:
        task.cancel()
        await asyncio.wait({task}, timeout=GRACE_S)
        return [unanswered(name, timeout_s, remedy)]
    try:
        return list(task.result())
    except CombeeError as error:
        return [Check(name=name, verdict="fail", says=str(error), remedy=remedy)]
    except TimeoutError:
        return [unanswered(name, timeout_s, remedy)]


async def broker(connected: Connection) -> list[Check]:
    """Check which brokers answer."""
    reachability = Reachability(connected)
    try:
        await reachability.check()  # says why none answers, which the clients do not
    finally:
        await reachability.close()
    broker_abilities = await abilities(connected)
    return [
        cluster.judge_broker(
            cluster.BrokerState(addresses=broker_abilities.addresses, requests=broker_abilities.requests)
        )
    ]


async def layout(settings: Settings, connected: Connection) -> list[Check]:
    """Compare the topics with their required configuration."""
    problems = await backends.topic_problems(settings, connected)
    states = {
        name: cluster.TopicReplicas(
            replication_factor=state.replication_factor,
            leaderless=state.leaderless,
            under_replicated=state.under_replicated,
        )
        for name, state in (await replicas(connected)).items()
        if name in OURS
    }
    brokers = len((await abilities(connected)).addresses)
    embedded = settings.kafka.bootstrap_servers is None
    return cluster.judge_topics(problems, states, brokers=brokers, embedded=embedded)


async def transactions(connected: Connection) -> list[Check]:
    """Check open transactions and their time limit; a broker that refuses to report them is no failure."""
    checks = [cluster.judge_transactions(await open_transactions(connected))]
    try:
        longest_s = await longest_transaction_s(connected)
    except CombeeError:
        longest_s = None
    return checks if longest_s is None else [*checks, cluster.judge_longest_transaction(longest_s)]


async def clock(connected: Connection) -> list[Check]:
    """Compare the clocks; a cluster that refuses the attempt is no failure."""
    try:
        measured = await skew(connected)
    except CombeeError as error:
        remedy = "compare the clocks by hand, or let this user create a topic named doctor-…"
        return [Check(name="clock", verdict="warn", says=f"not comparable: {error}", remedy=remedy)]
    return [cluster.judge_clock(measured.ahead_ms, measured.within_ms)]


async def lag(log: Log, connected: Connection, group: str, timeout_s: float) -> list[Check]:
    """Check a service's lag and its members."""
    waiting = await backlog(log, group, SystemClock())
    observed = flow.GroupLag(
        group=group,
        records=waiting.lag,
        oldest_s=waiting.oldest_uncommitted_s,
        members=await KafkaAdmin(connected).members(group, within_s=INNER_SHARE * timeout_s),
    )
    return [flow.judge_lag(observed)]


async def dead_letters(log: Log) -> list[Check]:
    """Check how many dead letters there are, how many are new and open, and the last one's reason."""
    total, letters = await recent_letters(log, SystemClock().now_ms() - DAY_MS, LAST_LETTERS)
    reasons = [
        letter.letter.reason if letter.letter else "a dead letter that cannot be read" for letter in letters
    ]
    return [flow.judge_dead_letters(total=total, recent=len(letters), reasons=list(map(redacted, reasons)))]


async def batches(log: Log, settings: Settings) -> list[Check]:
    """Look for manifests without a version."""
    # Includes deleted playbooks and branches, whose last manifests may be among the newest.
    published = {name: snapshot.batch_sequence for name, snapshot in (await newest_snapshots(log)).items()}
    now_ms = SystemClock().now_ms()
    delays = [
        flow.Unpublished(
            playbook=batch.plan.playbook,
            sequence=batch.plan.sequence,
            age_s=max(0, now_ms - batch.plan.closed_at_ms) / 1000,
        )
        for batch in await unpublished(log, published)
    ]
    limits = settings.batch
    return [flow.judge_batches(delays, timeout_s=limits.batch_timeout_s, retries=SHUFFLE_LIMITS.retries)]


async def retention(log: Log) -> list[Check]:
    """Check what became of the reflections of the playbooks' last batches."""
    return [flow.judge_retention((await newest_playbooks(log)).values())]


async def branches(log: Log, settings: Settings) -> list[Check]:
    """Check for open branches that are paused."""
    known = await lines_now(log, settings)
    lines = in_order(name for name, snapshot in known.snapshots.items() if snapshot.branch is not None)
    paused = {line: known.today[line].paused for line in lines}
    return [flow.judge_branches({line: why.reason if why else "" for line, why in paused.items()})]


async def flows(log: KafkaLog, settings: Settings, connected: Connection, timeout_s: float) -> list[Check]:
    """Run the checks that need correct topics."""
    probes: list[tuple[str, Probe]] = [
        *((f"lag of {group}", lambda group=group: lag(log, connected, group, timeout_s)) for group in INPUTS),
        ("transactions", lambda: transactions(connected)),
        ("dead letters", lambda: dead_letters(log)),
        ("batches", lambda: batches(log, settings)),
        ("retention", lambda: retention(log)),
        ("branches", lambda: branches(log, settings)),
    ]
    results = await asyncio.gather(*(within(timeout_s, name, probe) for name, probe in probes))
    return [check for checks in results for check in checks]


async def embeddings(chosen: ModelSettings) -> list[Check]:
    """Ask the embedding model for one vector; return no check if none is configured."""
    if chosen.embedding_model is None:
        return []
    await asyncio.to_thread(import_module, f"{OPENAI}.embedder")
    embedder = backends.embedder(chosen)
    if embedder is None:
        return []
    clock = SystemClock()
    began_s = clock.monotonic()
    try:
        (vector,) = (await embedder.embed([TRIAL.task])).vectors
    finally:
        await embedder.close()
    seconds = clock.monotonic() - began_s
    return [around.judge_embeddings(chosen.embedding_model or "", dimensions=len(vector), seconds=seconds)]


async def model(chosen: ModelSettings, timeout_s: float) -> list[Check]:
    """Ask the model three small questions."""
    if chosen.model is None:
        return [around.NO_MODEL]
    name, server = backends.model_address(chosen)
    probe = await asyncio.to_thread(import_module, f"{OPENAI}.probe")
    tried: Mapping[Form, Tried] = await probe.try_forms(
        ace.reflect_prompt(TRIAL, ()),
        name=name,
        server=server,
        timeout_s=min(INNER_SHARE * timeout_s, chosen.model_timeout_s),
    )
    answered = [trial for trial in tried.values() if trial.outcome != "failed"]
    trouble = next((trial.trouble for trial in tried.values() if trial.outcome == "failed"), None)
    observed = around.ModelTrial(
        model=chosen.model,
        works=frozenset(NAMES[form] for form, trial in tried.items() if trial.outcome == "works"),
        seconds=max((trial.seconds for trial in tried.values()), default=0.0),
        trouble=None if answered else trouble,
    )
    return [around.judge_model(observed)]
