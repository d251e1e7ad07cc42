"""``combee playbook bisect``: after which version, batch and reflections a playbook got worse."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.text import Text

from combee.adapters.ports import FatalError, Log
from combee.cli.evaluate import Job, evaluating, progress, with_job
from combee.cli.playbook import diff
from combee.cli.playbook.lookup import find_version, resolve_version
from combee.cli.shared.console import FAILED, output, print_json, remark
from combee.cli.shared.options import AsJson, Name, refs
from combee.core.playbook.comparison import Comparison
from combee.core.playbook.versions import empty
from combee.core.text.forms import printable
from combee.log.evaluation.bisecting import Bisected, bisect
from combee.log.evaluation.evaluator import Evaluated
from combee.log.history import messages
from combee_schemas import topics
from combee_schemas.playbook import LATEST, Playbook

MAX_NAMED = 10


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        "bisect",
        epilog="Example: combee playbook bisect support/refunds --good production --questions dev.jsonl",
    )(with_job(bisect_))


def bisect_(
    name: Name,
    *,
    good: Annotated[
        str, typer.Option(help="a version or label that was still good", autocompletion=refs)
    ] = "1",
    bad: Annotated[
        str, typer.Option(help="a later version or label that is worse", autocompletion=refs)
    ] = LATEST,
    as_json: AsJson = False,
    job: Job,
) -> None:
    """Find the version that lowered accuracy on held-out questions, and its batch; exit 1 if there is none."""
    culprit = asyncio.run(_bisect(job, name, good, bad))
    if as_json:
        print_json(as_document(name, culprit))
    else:
        for line in lines(name, culprit):
            output().print(line, markup=False, soft_wrap=True)
    if culprit.playbook is None:
        raise typer.Exit(FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """The version with which the score fell, its playbook and its batch's reflections."""

    bisected: Bisected
    playbook: Playbook | None = None
    """None if the two ends do not differ."""
    comparison: Comparison | None = None
    reflections: tuple[str, ...] = ()
    """Ids of its batch's reflections."""


async def _bisect(job: Job, name: str, good: str, bad: str) -> Culprit:
    async with evaluating(job) as (log, evaluator):
        first, last = await resolve_version(log, name, good), await resolve_version(log, name, bad)
        if first.version >= last.version:
            raise FatalError(
                f"version {first.version} (--good) is not before version {last.version} (--bad): name an older one"
            )

        async def worth(version: int) -> Evaluated:
            with progress(f"version {version}") as show:
                evaluated = await evaluator.evaluate(
                    await find_version(log, name, version), job.questions, show
                )
            if evaluated.stopped:
                raise FatalError(evaluated.stopped)
            remark(f"version {version}: {evaluated.score}")
            return evaluated

        return await _culprit(log, name, await bisect(first.version, last.version, worth))


async def _culprit(log: Log, name: str, bisected: Bisected) -> Culprit:
    if not bisected.bad:
        return Culprit(bisected=bisected)
    made = await find_version(log, name, bisected.bad)
    before = await find_version(log, name, bisected.good) if bisected.good else empty(name)
    members: tuple[str, ...] = ()
    async for batch in messages(log, topics.BATCHES, name):
        if made.origin == "batch" and batch.plan.sequence == made.batch_sequence:
            members = tuple(member.reflection_id for member in batch.members)
    comparison = await diff.compared(log, before, made)
    return Culprit(bisected=bisected, playbook=made, comparison=comparison, reflections=members)


def as_document(name: str, culprit: Culprit) -> dict[str, Any]:
    """Return the stable shape of ``bisect --json``."""
    bisected = culprit.bisected
    scores = {
        str(version): round(worth.score.mean, 6) for version, worth in sorted(bisected.evaluated.items())
    }
    ends = {"difference": bisected.ends.mean, "low": bisected.ends.low, "high": bisected.ends.high}
    shown: dict[str, Any] = {
        "name": name,
        "scores": scores,
        "ends": {key: round(n, 6) for key, n in ends.items()},
    }
    if culprit.playbook is None or culprit.comparison is None:
        return {**shown, "version": None}
    step = bisected.step
    return {
        **shown,
        "version": culprit.playbook.version,
        "origin": culprit.playbook.origin,
        "batch": culprit.playbook.batch_sequence if culprit.playbook.origin == "batch" else None,
        "fell_by": {
            "difference": round(step.mean, 6),
            "low": round(step.low, 6),
            "high": round(step.high, 6),
        },
        "reflections": list(culprit.reflections),
        "diff": diff.as_document(culprit.comparison),
    }


def lines(name: str, culprit: Culprit) -> Iterator[str | Text]:
    """Yield the result as text lines."""
    bisected = culprit.bisected
    first, last = min(bisected.evaluated), max(bisected.evaluated)
    yield f"version {last} − version {first}: {bisected.ends} on {bisected.ends.n} questions"
    if culprit.playbook is None or culprit.comparison is None:
        better = (
            "it is better"
            if bisected.ends.is_significant
            else "no difference is shown: more questions would give a clearer answer"
        )
        yield f"version {last} is not worse than version {first} ({better})"
        return
    made = culprit.playbook
    by = (
        f"batch {made.batch_sequence}"
        if made.origin == "batch"
        else f"{made.origin} by {printable(made.issued_by) or 'an unknown user'}"
    )
    evaluations = len(bisected.evaluated)
    yield f"{name} fell with version {made.version} ({by}): {bisected.step}, after {evaluations} evaluations"
    if not bisected.step.is_significant:
        yield "that step alone is within chance: it fell little by little, or more questions are needed"
    yield from diff.lines(culprit.comparison)
    if culprit.reflections:
        more = (
            f" and {len(culprit.reflections) - MAX_NAMED} more"
            if len(culprit.reflections) > MAX_NAMED
            else ""
        )
        yield f"learned from {printable(', '.join(culprit.reflections[:MAX_NAMED]))}{more}"
        yield "'combee why ENTRY' leads from an entry to its reflections, 'combee playbook revoke' takes them back"
