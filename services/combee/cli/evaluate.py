"""``combee evaluate``: how many held-out questions a version gets right, and whether it beats another."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress

from combee.adapters.clock import SystemClock
from combee.adapters.ports import LanguageModel, Log
from combee.assembly.answerers import answerer, evaluation_caps, evaluation_model, held_out
from combee.assembly.local.deployment import beside, deployment
from combee.assembly.local.preflight import model_flag, require_model, uses_stand_in
from combee.cli.playbook.files import read_text
from combee.cli.playbook.lookup import resolve_version_or_branch
from combee.cli.shared.console import COLUMNS, FAILED, diagnostics, output, print_json, remark
from combee.cli.shared.log import open_log
from combee.cli.shared.options import AsJson, BaseUrl, Name, Ref, Servers, Simulated, places
from combee.cli.shared.settings import deployed_settings
from combee.core.evaluation.intervals import Interval, paired
from combee.core.evaluation.questions import Question
from combee.core.evaluation.scoring import SCORERS
from combee.log.evaluation.evaluator import Evaluated, Evaluator
from combee.process.settings.loading import Settings
from combee_schemas.playbook import LATEST

MAX_TROUBLES = 3
"""Maximum number of unanswered questions printed per version."""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee evaluate support/refunds --against production --questions dev.jsonl")(
        with_job(evaluate)
    )


def evaluate(
    name: Name,
    version: Ref = LATEST,
    *,
    against: Annotated[
        str | None, typer.Option(help="compare with this version, label or branch", autocompletion=places)
    ] = None,
    as_json: AsJson = False,
    job: "Job",
) -> None:
    """Score a version on held-out questions.

    Stored answers are not paid for again.
    """
    results = asyncio.run(_evaluate(job, name, [ref for ref in (version, against) if ref is not None]))
    verdict = paired(results[0].points, results[1].points) if against else None
    if as_json:
        print_json(as_document(results, verdict))
    else:
        for line in lines(results, verdict):
            output().print(line, markup=False, soft_wrap=True)
    for result in results:
        for trouble in result.troubles[:MAX_TROUBLES]:
            remark(f"version {result.version}: no answer, which counts as wrong: {trouble}")
        if result.stopped:
            remark(f"version {result.version}: {result.unasked} questions were not asked: {result.stopped}")
    if any(result.stopped for result in results):
        raise typer.Exit(FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Questions, model and scorer of one evaluation."""

    settings: Settings
    simulated: LanguageModel | None
    questions: list[Question]
    stall_s: float


def job_of(
    *,
    questions: Annotated[
        Path | None, typer.Option(help="held-out ACE samples (JSON lines); never learn from them")
    ] = None,
    scorer: Annotated[str | None, typer.Option(help=f"one of {', '.join(SCORERS)}")] = None,
    model: Annotated[
        str | None, typer.Option(help="the model that answers; else COMBEE_EVAL_MODEL, COMBEE_MODEL")
    ] = None,
    base_url: BaseUrl = None,
    simulated: Simulated = False,
    stall_timeout: Annotated[
        float, typer.Option(min=1, help="give up when a question has no answer after this long (s)")
    ] = 600.0,
    bootstrap_servers: Servers = None,
) -> Job:
    """Return the job of a verb's options; wrong options are refused before a broker is looked up."""
    settings = _where(
        deployed_settings(
            eval_questions=questions,
            eval_scorer=scorer,
            eval_model=model_flag(simulated=simulated, model=model, base_url=base_url),
            eval_base_url=base_url,
            bootstrap_servers=bootstrap_servers,
        )
    )
    asked = held_out(settings, read_text)
    return Job(
        settings=settings,
        simulated=stand_in(settings, simulated=simulated),
        questions=asked,
        stall_s=stall_timeout,
    )


def with_job(verb: Callable[..., None]) -> Callable[..., None]:
    """Return a verb with the options of ``job_of`` added to its own."""
    own, options = signature(verb), signature(job_of).parameters

    @wraps(verb)
    def run(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in options}
        verb(**given, job=job_of(**chosen))

    parameters = [
        *(parameter for parameter in own.parameters.values() if parameter.name != "job"),
        *options.values(),
    ]
    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def _where(settings: Settings) -> Settings:
    """Return the settings; without a configured model, with that of the deployment running here."""
    running = deployment(settings)
    return beside(running, settings) if running else settings


def stand_in(settings: Settings, *, simulated: bool) -> LanguageModel | None:
    """Return an in-process stand-in if one is requested and none runs; it reads the answers from the file."""
    if settings.evaluation.answers != "model":
        return None
    model = evaluation_model(settings)
    if not uses_stand_in(model, simulated=simulated):
        require_model(model)
        return None
    from combee_sim.family.knowledge import read_knowledge  # noqa: PLC0415 - only for a simulation
    from combee_sim.inprocess import SimulatedModel  # noqa: PLC0415 - the same

    file = settings.evaluation.eval_questions
    assert file is not None  # noqa: S101 - the questions were read from it
    remark("the answers are simulated")
    return SimulatedModel(knowledge=read_knowledge(file))


@asynccontextmanager
async def evaluating(job: Job) -> AsyncIterator[tuple[Log, Evaluator]]:
    """Yield the log and its evaluator."""
    settings, model = job.settings, evaluation_model(job.settings)
    async with open_log(settings) as (log, _), answerer(settings, job.simulated) as who:
        yield (
            log,
            Evaluator(
                log,
                who,
                SystemClock(),
                concurrency=model.llm_concurrency,
                caps=evaluation_caps(settings),
                stall_s=job.stall_s,
            ),
        )


async def _evaluate(job: Job, name: str, versions: list[str]) -> list[Evaluated]:
    results: list[Evaluated] = []
    async with evaluating(job) as (log, evaluator):
        for ref in versions:
            playbook = await resolve_version_or_branch(log, name, ref)
            with progress(f"version {playbook.version}") as show:
                results.append(await evaluator.evaluate(playbook, job.questions, show))
    return results


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show on standard error how many questions are answered."""
    console = diagnostics()
    with Progress(*COLUMNS, console=console, transient=True, disable=not console.is_terminal) as bars:
        bar = bars.add_task(what)
        yield lambda done, total: bars.update(bar, completed=done, total=total)


def as_document(results: list[Evaluated], difference: Interval | None) -> dict[str, Any]:
    """Return the stable shape of ``evaluate --json``."""
    first, *others = [
        {
            "version": result.version,
            **_interval(result.score, "score"),
            "questions": result.score.n,
            "known": result.known,
            "unasked": result.unasked,
            "without_answer": len(result.troubles),
            "model_calls": result.usage.calls,
            "tokens": result.usage.tokens(),
            "cost": round(result.cost, 6),
        }
        for result in results
    ]
    compared = {"against": others[0], **_interval(difference, "difference")} if difference else {}
    if len({result.playbook for result in results}) > 1:
        compared["against"] = {"name": results[1].playbook, **others[0]}
    verdict = {"verdict": verdict_of(difference)} if difference else {}
    return {"name": results[0].playbook, **first, **compared, **verdict}


def _interval(interval: Interval, name: str) -> dict[str, float]:
    return {
        name: round(interval.mean, 6),
        f"{name}_low": round(interval.low, 6),
        f"{name}_high": round(interval.high, 6),
    }


def verdict_of(difference: Interval) -> str:
    """Return a difference's verdict, in a word or two."""
    if not difference.is_significant:
        return "no difference shown"
    return "better" if difference.mean > 0 else "worse"


def lines(results: list[Evaluated], difference: Interval | None) -> Iterator[str]:
    """Yield the result for people."""
    for result in results:
        paid = result.usage.tokens_in + result.usage.tokens_out
        asked = len(result.points) - result.known
        yield (
            f"{result.playbook} version {result.version}: {result.score} of {result.score.n} questions right;"
            f" {asked} answered now, {result.known} known; {paid:,} tokens"
            + (f", {result.cost:,.4f} in money" if result.cost else "")
        )
    if difference is not None:
        of_lines = len({result.playbook for result in results}) > 1
        ours, theirs = (
            f"{result.playbook} version {result.version}" if of_lines else f"version {result.version}"
            for result in results
        )
        yield (
            f"{ours} − {theirs}: {difference} on {difference.n} questions: {verdict_of(difference)} (95 %)"
        )
