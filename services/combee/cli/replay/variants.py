"""``combee replay --variant …``: learn again with other settings, or without part of the input."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rich.progress import Progress, TaskID

from combee.adapters.clock import SystemClock
from combee.adapters.ports import FatalError, LanguageModel, Log
from combee.assembly.answerers import answerer, evaluation_caps
from combee.assembly.backends import connection, create_topics, known_sources, opened
from combee.assembly.local.preflight import check
from combee.cli.playbook.lookup import find_version
from combee.cli.replay.recorded import Range, Recording, recording
from combee.cli.replay.shadow import layout, services, shadow_settings
from combee.cli.replay.variant_run import RunResult, VariantRun
from combee.cli.shared.console import COLUMNS, confirmed, diagnostics, remark
from combee.cli.shared.log import open_log
from combee.core.evaluation.questions import Question
from combee.core.log.replaying.outcome import spent
from combee.core.log.replaying.selection import Selection
from combee.core.log.replaying.steps import (
    Arrival,
    Estimate,
    as_batched,
    closed_at_ms,
    cut_anew,
    estimate,
    is_same_work,
    median_staleness_s,
)
from combee.core.log.replaying.variant import Variant
from combee.core.names.sources import sources_text
from combee.log.evaluation.evaluator import Evaluated, Evaluator
from combee.log.reports.replay import Replayed, RunReport, run_report
from combee.process.settings.loading import Settings, load_settings
from combee.process.settings.methods import as_configured, plan_settings
from combee_schemas.digests import digest
from combee_schemas.plan import PlanSettings
from combee_schemas.playbook import Playbook


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The requested variants and their options."""

    name: str
    settings: Settings
    to: str
    range: Range
    variants: Sequence[Variant]
    seeds: Sequence[int]
    without: Sequence[Selection]
    """Reflections excluded from every variant."""
    base: int | None
    """The version that variants begin with, None for an empty playbook."""
    simulated: bool
    sim_options: Sequence[str]
    questions: Sequence[Question]
    simulated_answers: LanguageModel | None
    timeout_s: float
    agreed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One variant with one seed, planned."""

    variant: Variant
    seed: int
    settings: Settings
    batches: list[tuple[Arrival, ...]]
    closed_ms: list[float]
    """Closing time of each batch's window if the reflections arrive as they did originally."""
    estimate: Estimate
    made_with: str
    """Digest of all input of the playbook other than the reflections."""
    is_needless: bool
    """Whether what the variant changes changes no call."""


async def replay_variants(job: Job) -> list[RunReport] | None:
    """Return a report on the original and for each run; None if the user declines the cost.

    Raises
    ------
    FatalError
        If there is nothing to replay, it has expired, or a run cannot continue.
    """
    async with open_log(job.settings) as (log, servers):
        original = await recording(log, job.name, job.range, known=known_sources(job.settings.sources))
        base = await find_version(log, job.name, job.base) if job.base else None
        runs = [run async for run in _planned(job, log, original)]
        for variant in dict.fromkeys(run.variant.name for run in runs if run.is_needless):
            remark(
                f"variant {variant} cannot make a difference: what it changes changes no batch, group, prompt or"
                " model in this range, so it makes the calls of a replay without changes"
            )
        if not _agreed(job, original, runs):
            return None
        if not job.simulated:
            for run in runs:
                await check(run.settings, simulated=False)
        rows: list[Replayed] = []
        with Progress(*COLUMNS, console=diagnostics(), transient=True) as bars:
            for number, run in enumerate(runs, 1):
                what = f"{run.variant.name}, seed {run.seed} ({number} of {len(runs)})"
                bar = bars.add_task(what, total=len(run.batches))
                done = await _run(job, log, servers, run, base, partial(_show, bars, bar))
                bars.remove_task(bar)
                rows.append(_row(run, done))
        rows.insert(0, await _original(log, job, original))
        if job.questions:
            rows = await _scored(job, log, servers, rows)
    return [run_report(row, rows[0]) for row in rows]


def _show(bars: Progress, bar: TaskID, done: int, total: int) -> None:
    bars.update(bar, completed=done, total=total)


# ---- before the model is called


async def _planned(job: Job, log: Log, original: Recording) -> AsyncIterator[_Run]:
    last = original.batches[max(original.batches)].plan.settings
    usage, now = spent(original.versions), as_configured(last)
    recorded = {"playbook_tokens": last.playbook_tokens, "embedding_model": last.embeddings}
    beyond = {name: value for name, value in recorded.items() if value}
    sources = job.settings.sources
    here = {
        "bootstrap_servers": job.settings.kafka.bootstrap_servers,
        "sources_file": sources.sources_file,
        **_model(job.settings),
    }
    unchanged = load_settings(**{**here, **now, **beyond})
    for variant in job.variants:
        rules = [*job.without, *map(Selection.parse, variant.without)]
        kept = await recording(log, job.name, job.range, rules, known_sources(sources)) if rules else original
        if kept.unproven:
            remark(
                f"variant {variant.name}: {sources_text(kept.unproven)} count as unproven, because no file"
                " that COMBEE_SOURCES_FILE names proves them now"
            )
        arrivals = kept.arrivals
        changed = load_settings(**{**here, **now, **beyond, **variant.settings})
        is_needless = _is_needless(variant, arrivals, original, changed, unchanged)
        for seed in job.seeds:
            flags: dict[str, Any] = {**now, **beyond, **variant.settings}
            if seed:
                flags["salt"] = f"{variant.settings.get('salt', '')}replay-{seed}"
            settings = load_settings(**{**here, **flags})
            cut = _cut(variant, arrivals, settings)
            if variant.cuts_anew:
                size, wait_s = settings.batch.batch_size, settings.batch.max_wait_s
                closed = [closed_at_ms(batch, batch_size=size, max_wait_s=wait_s) for batch in cut]
            else:
                closed = [float(original.batches[batch[0].sequence].plan.closed_at_ms) for batch in cut]
            shape = _shape(settings)
            prefix = f"{job.to}-{variant.name}-{seed}"
            there = await shadow_settings(settings, log, prefix, tuple(original.batches.values()))
            yield _Run(
                variant=variant,
                seed=seed,
                batches=cut,
                closed_ms=closed,
                estimate=estimate(cut, shape, usage),
                made_with=_digest(job, variant, settings, shape),
                is_needless=is_needless,
                settings=there,
            )


def _cut(variant: Variant, arrivals: Sequence[Arrival], settings: Settings) -> list[tuple[Arrival, ...]]:
    if not variant.cuts_anew:
        return as_batched(arrivals)
    return cut_anew(arrivals, batch_size=settings.batch.batch_size, max_wait_s=settings.batch.max_wait_s)


def _shape(settings: Settings) -> PlanSettings:
    return plan_settings(
        settings.batch, settings.playbook.playbook_tokens, settings.model.embedding_model or ""
    )


def _is_needless(
    variant: Variant, arrivals: Sequence[Arrival], original: Recording, changed: Settings, unchanged: Settings
) -> bool:
    """Return whether a variant changes something, and that reaches no call of this range."""
    if variant.simulation or not (variant.settings or variant.without):
        return False
    models = [(settings.model.model, settings.model.base_url) for settings in (changed, unchanged)]
    batches = _cut(variant, arrivals, changed)
    before = as_batched(original.arrivals)
    return models[0] == models[1] and is_same_work(batches, _shape(changed), before, _shape(unchanged))


def _digest(job: Job, variant: Variant, settings: Settings, shape: PlanSettings) -> str:
    simulation = [*job.sim_options, *(f"{name}={value}" for name, value in variant.simulation.items())]
    asked = settings.model.model or "", variant.settings.get("base_url", "")
    return digest(shape.model_dump_json(), *asked, job.base or 0, *simulation).hex()[:12]


def _model(settings: Settings) -> dict[str, Any]:
    """Return the model from the deployment running here, or from the flags."""
    model = settings.model
    return {"model": model.model, "base_url": model.base_url, "api_key": model.api_key}


def _agreed(job: Job, original: Recording, runs: Sequence[_Run]) -> bool:
    """Print the maximum cost, and ask for agreement."""
    total = sum((run.estimate for run in runs), Estimate())
    policy = replace(job.settings.spend.policy(job.settings.model.model), daily_tokens=None, daily_cost=None)
    cost = policy.cost(total)
    money = f", {cost:,.2f} in money" if cost else ""
    remark(
        f"{len(runs)} runs of {len(original.arrivals):,} reflections: about {total.calls:,} model calls,"
        f" {total.tokens_in:,} tokens read and {total.tokens_out:,} written{money}; recorded answers cost nothing"
    )
    if original.commands:
        remark(f"{original.commands} versions of that range were made by people: variants do not repeat them")
    return job.agreed or confirmed("go on?")


# ---- the runs


async def _run(job: Job, log: Log, servers: str, run: _Run, base: Playbook | None, show: Any) -> RunResult:
    connected = connection(run.settings, servers)
    await create_topics(run.settings, connected)
    done = RunResult(
        variant=run.variant, seed=run.seed, prefix=run.settings.kafka.topic_prefix, batches=run.batches
    )
    async with opened(run.settings, servers) as target:
        shadow = VariantRun(log, target, job.name, timeout_s=job.timeout_s, made_with=run.made_with)
        if await shadow.is_complete(run.batches):
            return await shadow.read(done)
        sim = (*job.sim_options, *(f"{name}={value}" for name, value in run.variant.simulation.items()))
        options = [f"--{option}" for option in sim]
        # Another simulation gives other answers.
        recorded = None if sim else job.settings.kafka.topic_prefix
        async with services(
            run.settings,
            servers,
            ask=True,
            simulated=job.simulated,
            sim_arguments=options,
            answers_from=recorded,
        ):
            return await shadow.run(done, base, show)


def _row(run: _Run, done: RunResult) -> Replayed:
    if done.newest is None:
        raise FatalError(f"{run.variant.name} made no version")
    return Replayed(
        variant=run.variant.name,
        seed=run.seed,
        prefix=done.prefix,
        versions=done.versions,
        newest=done.newest,
        staleness_s=median_staleness_s(run.batches, run.closed_ms, done.seconds),
        seconds=sum(done.seconds.values()),
        points=None,
    )


async def _original(log: Log, job: Job, original: Recording) -> Replayed:
    last = original.versions[-1]
    made = {version.batch_sequence: version for version in original.versions}
    waited = sorted(
        (made[arrival.sequence].created_at_ms - arrival.at_ms) / 1000
        for arrival in original.arrivals
        if arrival.sequence in made
    )
    took = [
        (version.created_at_ms - version.batch.plan.closed_at_ms) / 1000
        for version in original.versions
        if version.batch
    ]
    return Replayed(
        variant="original",
        seed=None,
        prefix=job.settings.kafka.topic_prefix,
        versions=original.versions,
        newest=await find_version(log, job.name, last.version),
        staleness_s=waited[len(waited) // 2],
        seconds=sum(took),
        points=None,
    )


# ---- scores


async def _scored(job: Job, log: Log, servers: str, rows: Sequence[Replayed]) -> list[Replayed]:
    """Ask the held-out questions; scores are kept under the first run's prefix, not the original's."""
    settings = job.settings
    there = {**await layout(log), "topic_prefix": rows[1].prefix}
    home = replace(settings, kafka=settings.kafka.model_copy(update=there))
    caps = evaluation_caps(settings)
    async with opened(home, servers) as kept, answerer(settings, job.simulated_answers) as who:
        evaluator = Evaluator(kept, who, SystemClock(), caps=caps, known_in=[log], stall_s=job.timeout_s)
        scored: list[Replayed] = []
        for row in rows:
            evaluated: Evaluated = await evaluator.evaluate(row.newest, job.questions)
            if evaluated.stopped:
                raise FatalError(evaluated.stopped)
            scored.append(replace(row, points=evaluated.points))
        return scored
