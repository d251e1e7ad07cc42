"""The tools with their arguments and answers. Playbooks' texts are fenced as data."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from combee.adapters.clock import SystemClock
from combee.adapters.ports import FatalError, PoisonError
from combee.core.names.identity import content_id, fingerprint
from combee.core.playbook.shown import shown
from combee.core.playbook.versions import empty
from combee.core.text.prompt import fence
from combee.core.text.similarity.relevance import relevance
from combee.integrations.mcp.deployment import Deployment
from combee.sdk import PlaybookView, Redactor
from combee.sdk.redaction import redacted
from combee_schemas.base import LineName, Shown, branch_in, named_score, playbook_of
from combee_schemas.outcome import MAX_USED, Outcome
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import BulletTag, Reflection
from combee_schemas.topics import Published

FOUND = 8
MAX_SEARCHED = 200
"""Maximum number of playbooks searched, the first by name."""
AT_ONCE = 8

Name = Annotated[LineName, Field(description="The playbook's name, such as support/refunds.")]
VersionRead = Annotated[
    int | None,
    Field(None, ge=1, description="The version that you had read, as the tool playbook returned it."),
]
Id = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class Arguments(BaseModel):
    """Arguments of a tool."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class ReadPlaybook(Arguments):
    """Arguments of ``playbook``."""

    playbook: Name
    label: str | None = Field(None, description="The version that a label points at, such as production.")
    version: int | None = Field(None, ge=1, description="This version instead of the newest.")
    query: str | None = Field(None, description="Your task, to which the most relevant entries are returned.")
    k: int | None = Field(None, ge=1, description="Maximum number of entries.")
    budget_tokens: int | None = Field(None, ge=1, description="Maximum number of tokens of entries.")


class SearchEntries(Arguments):
    """Arguments of ``search_entries``."""

    query: str = Field(min_length=1, max_length=20_000, description="Words to search for.")
    playbook: LineName | None = Field(None, description="Only in this playbook; else in all.")
    k: int = Field(FOUND, ge=1, le=100, description="Maximum number of entries.")


class PublishReflection(Arguments):
    """Arguments of ``publish_reflection``."""

    playbook: Name
    key_insight: str = Field(
        description="The lesson, in a sentence that helps the next agent with such a task."
    )
    reasoning: str = Field("", description="What happened, step by step.")
    error_identification: str = Field("", description="What went wrong.")
    root_cause_analysis: str = Field("", description="Why it went wrong.")
    correct_approach: str = Field("", description="What to do instead.")
    bullet_tags: tuple[BulletTag, ...] = Field(
        (), max_length=MAX_USED, description="Which entries helped or harmed, by their ids."
    )
    version: VersionRead


class ReportOutcome(Arguments):
    """Arguments of ``report_outcome``."""

    playbook: Name
    run_id: Id = Field(description="Any name that no other run of the playbook has; a repeat counts once.")
    success: bool | None = Field(None, description="Whether the run succeeded.")
    score: float | None = Field(None, ge=-1e15, le=1e15, description="How well it went; higher is better.")
    version: VersionRead
    used_entries: tuple[str, ...] = Field(
        (), max_length=MAX_USED, description="Ids of the entries that you used."
    )


class Why(Arguments):
    """Arguments of ``why``."""

    playbook: Name
    entry: Id = Field(description="The entry's id, such as calc-00012.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool."""

    name: str
    title: str
    description: str
    takes: type[Any]
    run: Callable[[Deployment, Any], Awaitable[str]]
    writes: bool = False


async def read_playbook(deployment: Deployment, asked: ReadPlaybook) -> str:
    """Return a playbook as a prompt, or the requested part."""
    if asked.label is not None and asked.version is not None:
        raise PoisonError("label and version name two versions: give one of them")
    playbook = await deployment.playbook(asked.playbook, label=asked.label, version=asked.version)
    view = PlaybookView(name=playbook.name, snapshot=playbook)
    chosen = view.choose(query=asked.query, k=asked.k, budget_tokens=asked.budget_tokens)
    head = f"{playbook.name}, version {playbook.version}"
    left_out = len(view.entries) - len(chosen.entries)
    if left_out:
        head += f": {len(chosen.entries)} of {len(view.entries)} entries"
    return f"{head}\n{chosen.prompt() or 'It has no entries yet.'}"


async def search_entries(deployment: Deployment, asked: SearchEntries) -> str:
    """Return the entries most relevant to a query, best first, from one playbook or all."""
    names, left_out = await _searched(deployment, asked.playbook)
    limit = asyncio.Semaphore(AT_ONCE)

    async def read(name: str) -> Playbook:
        async with limit:
            try:
                return await deployment.playbook(name)
            except (PoisonError, FatalError):
                if asked.playbook is not None:
                    raise
                return empty(name)  # it waits at its gate, or is deleted by now

    playbooks = await asyncio.gather(*map(read, names))
    # Entry ids are unique only within a playbook.
    entries = {
        f"{playbook.name} [{entry.id}]": entry for playbook in playbooks for entry in shown(playbook).entries
    }
    pool = [entry.model_copy(update={"id": place}) for place, entry in entries.items()]
    # In a thread, because other callers must not wait for it.
    scores = await asyncio.to_thread(relevance, pool, asked.query)
    best = sorted((place for place in scores if scores[place] > 0), key=lambda place: (-scores[place], place))
    where = asked.playbook or f"{len(names)} playbooks"
    if left_out:
        where += " (there are more: name one as playbook)"
    if not best:
        return f"no entry in {where} has a word of the query"
    chosen = best[: asked.k]
    lines = [f"{place} ({entries[place].section}) {entries[place].content}" for place in chosen]
    return f"{len(chosen)} of {len(best)} entries in {where}, best first\n{fence('entries', lines)}"


async def _searched(deployment: Deployment, playbook: str | None) -> tuple[Sequence[str], bool]:
    """Return the playbooks to search, and whether there are more."""
    if playbook is not None:
        return [playbook], False
    names, after = list[str](), None
    while len(names) < MAX_SEARCHED:
        page = await deployment.playbooks(after)
        names += [listed.name for listed in page.playbooks]
        if (after := page.next) is None:
            break
    return names[:MAX_SEARCHED], len(names) > MAX_SEARCHED or after is not None


async def publish_reflection(deployment: Deployment, asked: PublishReflection) -> str:
    """Publish a lesson; a repeat counts once."""
    unnamed = Reflection(
        reflection_id="unnamed",
        playbook=playbook_of(asked.playbook),  # a branch learns from its playbook's input
        shown=_shown(asked.playbook, asked.version, tuple(tag.id for tag in asked.bullet_tags)),
        **asked.model_dump(exclude={"version", "playbook"}),
    )
    if lack := unnamed.lack:
        raise PoisonError(lack)
    own = content_id("r", fingerprint(unnamed))
    await _send(deployment, unnamed.model_copy(update={"reflection_id": own}))
    return f"accepted as {own}: it is learned with the next batch of {unnamed.playbook}, and a new version follows"


async def report_outcome(deployment: Deployment, asked: ReportOutcome) -> str:
    """Report the outcome of a run."""
    if asked.success is None and asked.score is None:
        raise PoisonError("give success, score, or both")
    outcome = Outcome(
        run_id=asked.run_id,
        playbook=playbook_of(asked.playbook),
        shown=_shown(asked.playbook, asked.version, ()),
        bullet_ids=asked.used_entries,
        success=asked.success,
        score={} if asked.score is None else named_score(asked.score),
    )
    await _send(deployment, outcome)
    return f"accepted: run {asked.run_id} counts for {asked.playbook}" + (
        f" version {asked.version}" if asked.version else ", for no version: give the one that you had read"
    )


def _shown(line: str, version: int | None, entry_ids: tuple[str, ...]) -> Shown | None:
    if version is None:
        return None
    return Shown(version=version, entry_ids=entry_ids, line=line if branch_in(line) else "")


async def _send(deployment: Deployment, message: Published) -> None:
    clean = redacted(message, Redactor())
    await deployment.send(clean.model_copy(update={"created_at_ms": SystemClock().now_ms()}))


async def why(deployment: Deployment, asked: Why) -> str:
    """Return an entry's origin."""
    return fence("lineage", await deployment.why(asked.playbook, asked.entry))


TOOLS = (
    Tool(
        name="playbook",
        title="Read a playbook",
        description=(
            "Read what all agents have learned about a kind of task. Call it before you begin one; the resource"
            " combee://playbooks/NAME tells you when there is a newer version."
        ),
        takes=ReadPlaybook,
        run=read_playbook,
    ),
    Tool(
        name="search_entries",
        title="Search playbooks",
        description="Find the entries of one playbook, or of all, that are most relevant to a query.",
        takes=SearchEntries,
        run=search_entries,
    ),
    Tool(
        name="publish_reflection",
        title="Publish a lesson",
        description=(
            "Publish a lesson that you drew from a run, so that the playbook can learn it. Call it when something"
            " went wrong, or worked for a reason that others should know. The same lesson again counts once."
        ),
        takes=PublishReflection,
        run=publish_reflection,
        writes=True,
    ),
    Tool(
        name="report_outcome",
        title="Report how a run went",
        description="Report whether a run succeeded, so that versions and entries can be compared.",
        takes=ReportOutcome,
        run=report_outcome,
        writes=True,
    ),
    Tool(
        name="why",
        title="Where an entry comes from",
        description="Show the versions and reflections behind an entry of a playbook.",
        takes=Why,
        run=why,
    ),
)
