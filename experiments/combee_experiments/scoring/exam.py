"""The exam: what agents get right with what they are given, and how many tokens of prompt that costs."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from combee.adapters.ports import LanguageModel, PoisonError
from combee.core.formats.ace_protocol import Score
from combee.core.formats.intake import Sample
from combee.core.methods import ace
from combee.core.text.prompt import estimate_tokens
from combee_experiments.data.samples import Data, Kind
from combee_experiments.scoring.answers import NOTHING, score
from combee_experiments.scoring.lessons import Lessons
from combee_schemas.model import Prompt
from combee_schemas.playbook import Playbook

AGENTS = 16
Given = Callable[[str], Playbook]
"""Question → the playbook before the agent that answers it."""
Asked = Callable[[Playbook, str], Prompt]
"""How a method asks an agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """An exam's outcome."""

    accuracy: float
    """Right places per place asked."""
    prompt_tokens: float
    """Of one question's prompt, on average."""


async def examine(
    model: LanguageModel,
    data: Data,
    lessons: Lessons,
    given: Given,
    *,
    simulated: bool,
    asked: Asked = ace.answer_prompt,
) -> Result:
    """Examine agents on the exam's questions.

    The stand-in can answer questions of its own family only. On other data its accuracy is the share of
    places whose lesson it is given: the same rule, without the question being asked.
    """
    books = [given(one.question) for one in data.exam]
    prompts = [asked(book, one.question) for book, one in zip(books, data.exam, strict=True)]
    tokens = sum(estimate_tokens(prompt.system) + estimate_tokens(prompt.user) for prompt in prompts)
    if simulated and data.kind != "family":
        # Most ways give every agent the same playbook, and looking for lessons in it is what takes long.
        held = {
            id(book): lessons.kept(entry.content for entry in book.entries)
            for book in {id(book): book for book in books}.values()
        }
        accuracy = fmean(
            lessons.share(one, held[id(book)]) for one, book in zip(data.exam, books, strict=True)
        )
    else:
        accuracy = (await _ask(model, data.kind, data.exam, prompts)).share
    return Result(accuracy=accuracy, prompt_tokens=tokens / len(prompts))


async def _ask(
    model: LanguageModel, kind: Kind, samples: Sequence[Sample], prompts: Sequence[Prompt]
) -> Score:
    slots = asyncio.Semaphore(AGENTS)

    async def one(sample: Sample, prompt: Prompt) -> Score:
        async with slots:
            try:
                answer = (await model.ask(prompt)).body.get("final_answer", "")
            except PoisonError:
                answer = ""  # a run without an answer is a wrong run
        return score(kind, str(answer), sample.target)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(*pair)) for pair in zip(samples, prompts, strict=True)]
    return sum((task.result() for task in tasks), NOTHING)
