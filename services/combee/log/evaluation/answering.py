"""Answering held-out questions with a playbook: by a model, or by a user's function."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from combee.adapters.ports import CombeeError, ConfigurationError, LanguageModel, PoisonError
from combee.core.evaluation.questions import Question
from combee.core.evaluation.scoring import Points, ScorerName, judge_prompt, none_of, read_judgement, score
from combee.core.formats.render import ace_lines
from combee.core.methods import ace, gepa
from combee.core.playbook.shown import shown
from combee.log.evaluation.isolated import in_thread, is_found
from combee_schemas.base import Usage
from combee_schemas.model import Prompt
from combee_schemas.playbook import Playbook


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The score of an answer, and its usage."""

    points: Points
    answer: str = ""
    trouble: str = ""
    usage: Usage = field(default_factory=Usage)


class Answerer(Protocol):
    """Answers a question with a playbook in the prompt, and scores the answer."""

    @property
    def name(self) -> str:
        """Its name, such as ``model openai/gpt-4.1-mini``."""

    def rests_on(self, playbook: Playbook, question: Question) -> Mapping[str, str]:
        """Return the parts that determine an answer and its score, by name: equal parts, equal score."""

    @property
    def at_once(self) -> int | None:
        """Maximum number of concurrent questions; None: no limit."""

    async def answer(self, playbook: Playbook, question: Question) -> Answered:
        """Answer a question; a failed answer counts as wrong and has a reason."""


def text_of(playbook: Playbook) -> str:
    """Return a playbook's text as agents read it, without counters, which are not content."""
    return "\n".join(ace_lines(shown(playbook), counters=False))


class ModelAnswerer:
    """Answers with ACE's generator prompt (GEPA's for components) and scores by rule or by a judge."""

    at_once = None

    def __init__(
        self,
        model: LanguageModel,
        name: str,
        *,
        scorer: ScorerName = "ace",
        judge: LanguageModel | None = None,
        judge_name: str = "",
    ) -> None:
        self._model = model
        self._judge = judge or model
        self._judge_name = judge_name or name
        self._scorer = scorer
        self.name = f"model {name}"

    def rests_on(self, playbook: Playbook, question: Question) -> Mapping[str, str]:
        """The whole prompt, the right answer, the models' names and the scorer."""
        prompt = _prompt(playbook, question)
        parts = {"by": self.name, "system": prompt.system, "user": prompt.user, "target": question.target}
        judged = {"judge": self._judge_name} if self._scorer == "judge" else {"kind": question.kind}
        return parts | {"scorer": self._scorer} | judged

    async def answer(self, playbook: Playbook, question: Question) -> Answered:
        """Ask, then score."""
        try:
            reply = await self._model.ask(_prompt(playbook, question))
        except PoisonError as error:
            return Answered(points=none_of(question), trouble=str(error), usage=error.usage)
        answer, usage = str(reply.body.get("final_answer") or ""), reply.usage
        try:
            match self._scorer:
                case "judge":
                    judged = await self._judge.ask(judge_prompt(question, answer))
                    usage += judged.usage
                    points = read_judgement(judged.body)
                case "regex":
                    points = Points(right=int(await is_found(question.target, answer)))
                case _:
                    points = score(self._scorer, answer, question)
            return Answered(points=points, answer=answer, usage=usage)
        except PoisonError as error:
            return Answered(
                points=none_of(question), answer=answer, trouble=str(error), usage=usage + error.usage
            )
        except ValueError as error:
            return Answered(points=none_of(question), answer=answer, trouble=str(error), usage=usage)


def _prompt(playbook: Playbook, question: Question) -> Prompt:
    prompt = gepa.answer_prompt if playbook.holds == "components" else ace.answer_prompt
    return prompt(playbook, question.text)


Function = Callable[[str, Mapping[str, str]], float | Awaitable[float]]
"""From a playbook's text and a question (``id``, ``question``, ``target``) to a score from 0 to 1."""


class FunctionAnswerer:
    """Scores by a user's function, or by an endpoint; see ``Function``."""

    def __init__(self, function: Function, name: str) -> None:
        self._function = function
        self._is_async = any(
            map(inspect.iscoroutinefunction, (function, getattr(function, "__call__", None)))  # noqa: B004
        )
        self.at_once = None if self._is_async else 1
        """Only an asynchronous function is known to allow concurrent calls."""
        self.name = name

    def rests_on(self, playbook: Playbook, question: Question) -> Mapping[str, str]:
        """Return the function's name: a changed function needs a new name to be asked again."""
        return {"by": self.name, "playbook": text_of(playbook), **_fields(question)}

    async def answer(self, playbook: Playbook, question: Question) -> Answered:
        """Call it.

        Raises
        ------
        PoisonError
            If it fails, or returns no number from 0 to 1.
        """
        try:
            arguments = text_of(playbook), _fields(question)
            if self._is_async:
                value: Any = self._function(*arguments)
            else:
                value = await in_thread(self._function, *arguments)
            if inspect.isawaitable(value):
                value = await value
        except CombeeError:
            raise
        except Exception as error:
            raise PoisonError(f"{self.name} failed on {question.id}: {error!r}") from error
        if isinstance(value, bool):
            value = float(value)
        if not isinstance(value, int | float) or not 0 <= value <= 1:
            raise PoisonError(
                f"{self.name} returned {value!r} for {question.id}: it must be a number from 0 to 1"
            )
        return Answered(points=Points(right=float(value)))


def _fields(question: Question) -> dict[str, str]:
    return {"id": question.id, "question": question.text, "target": question.target}


def loaded_function(place: str) -> Function:
    """Return the function that a setting names, as ``package.module:function``.

    Raises
    ------
    ConfigurationError
        If there is none.
    """
    module, _, path = place.partition(":")
    try:
        function: Any = import_module(module)
        for name in path.split("."):
            function = getattr(function, name)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"COMBEE_EVAL_FUNCTION: {place} cannot be loaded: {error}; add its folder to PYTHONPATH"
        ) from error
    if not callable(function):
        raise ConfigurationError(f"COMBEE_EVAL_FUNCTION: {place} is not a function")
    return function  # type: ignore[no-any-return]  # its result is checked at every call
