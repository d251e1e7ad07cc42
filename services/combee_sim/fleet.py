"""A simulated fleet: concurrent agents that answer questions with the playbook they have, and leave traces."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from combee.adapters.ports import LanguageModel, PoisonError
from combee.core.methods import ace
from combee.core.methods.method import Method
from combee.core.names.identity import content_id
from combee.core.playbook.shown import shown, shown_to
from combee.core.playbook.versions import empty
from combee_schemas.base import Shown
from combee_schemas.model import Prompt
from combee_schemas.playbook import Playbook
from combee_schemas.trace import Trace
from combee_sim.family.desk import Ticket
from combee_sim.family.family import Question, right

AGENTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a fleet."""

    asked: int
    right: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """How many questions the simulated agents got right."""

    right: int
    asked: int

    @property
    def share(self) -> float:
        """Right answers per question; 0 if there are no questions."""
        return self.right / self.asked if self.asked else 0.0

    def __str__(self) -> str:
        return f"simulated accuracy {self.share:.1%} ({self.right} of {self.asked})"


Publish = Callable[[Trace], Awaitable[None]]
CurrentPlaybook = Callable[[], Playbook | None]


async def run_fleet(
    model: LanguageModel,
    questions: Iterable[Question | Ticket],
    *,
    name: str,
    playbook: CurrentPlaybook,
    publish: Publish,
    agents: int = AGENTS,
    seed: int = 0,
    method: Method = ace,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Accuracy:
    """Let ``agents`` concurrent agents answer all questions, each leaving one trace for playbook ``name``.

    A trace's id depends on the name, the seed and the question's number only.
    """
    queue = iter(enumerate(questions))
    results: list[bool] = []

    async def agent(slot: int) -> None:
        for number, question in queue:
            trace = await _run(model, question, playbook(), method)
            identity = {
                "trace_id": content_id("t", "simulated", name, str(seed), str(number)),
                "playbook": name,
                "agent": f"simulated-{slot}",
            }
            await publish(trace.model_copy(update=identity))
            results.append(right(trace.answer, question.target))
            on_progress(Progress(asked=len(results), right=sum(results)))

    async with asyncio.TaskGroup() as group:
        for slot in range(agents):
            group.create_task(agent(slot))
    return Accuracy(right=sum(results), asked=len(results))


async def measure(
    model: LanguageModel,
    playbook: Playbook | None,
    questions: Sequence[Question | Ticket],
    *,
    agents: int = AGENTS,
    method: Method = ace,
) -> Accuracy:
    """Return the accuracy of simulated agents that all have this playbook."""
    queue = iter(questions)
    results: list[bool] = []

    async def agent() -> None:
        for question in queue:
            trace = await _run(model, question, playbook, method)
            results.append(right(trace.answer, question.target))

    async with asyncio.TaskGroup() as group:
        for _ in range(agents):
            group.create_task(agent())
    return Accuracy(right=sum(results), asked=len(results))


async def _run(
    model: LanguageModel, question: Question | Ticket, playbook: Playbook | None, method: Method
) -> Trace:
    prompt = method.answer_prompt(playbook or empty("simulated"), question.text)
    answer, trajectory = await _answer(model, prompt)
    verdict = "right" if right(answer, question.target) else f"wrong, {question.target} was wanted"
    return Trace(
        trace_id="simulated",
        playbook="simulated",
        task=question.text,
        trajectory=trajectory,
        answer=answer,
        feedback=f"The answer is {verdict}.",
        target=question.target,
        shown=_shown(playbook),
        metadata={"origin": "simulated"},
    )


async def _answer(model: LanguageModel, prompt: Prompt) -> tuple[str, str]:
    try:
        body = (await model.ask(prompt)).body
    except PoisonError as error:
        # A run without an answer counts as wrong; the fleet continues.
        return "", f"No usable reply: {error}"
    return str(body.get("final_answer", "")), str(body.get("reasoning", ""))


def _shown(playbook: Playbook | None) -> Shown | None:
    if playbook is None:
        return None
    return shown_to(playbook, shown(playbook).entries)
