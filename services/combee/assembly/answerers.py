"""Evaluation as configured: the answerer, the held-out questions, and the caps."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from combee.adapters.ports import Clock, ConfigurationError, LanguageModel, Log
from combee.assembly.backends import language_model
from combee.core.evaluation.questions import Question, read_questions
from combee.core.evaluation.scoring import bad_pattern
from combee.core.formats.intake import lines_of
from combee.core.playbook.spend import SpendPolicy
from combee.log.evaluation.answering import Answerer, FunctionAnswerer, ModelAnswerer, loaded_function
from combee.log.evaluation.evaluator import Evaluator
from combee.log.evaluation.judge import EvaluationJudge
from combee.process.settings.evaluation import EvaluationSettings
from combee.process.settings.loading import Settings
from combee.process.settings.model import ModelSettings

MAX_NAMED = 3
"""Maximum number of invalid lines named in an error."""


def evaluation_model(settings: Settings, name: str | None = None) -> ModelSettings:
    """Return the model that answers held-out questions; its unset values are the services'."""
    own, model = settings.evaluation, settings.model
    changes: dict[str, object] = {"model": name or own.eval_model or model.model}
    if own.eval_base_url:
        # The services' key is only sent to the services' server.
        changes |= {"base_url": own.eval_base_url, "api_key": own.eval_api_key}
    elif own.eval_api_key:
        changes |= {
            "api_key": own.eval_api_key,
            "azure_api_key": own.eval_api_key,
            "azure_ad_token": None,
        }
    return model.model_copy(update=changes)


@asynccontextmanager
async def answerer(settings: Settings, simulated: LanguageModel | None = None) -> AsyncIterator[Answerer]:
    """Yield the answerer of held-out questions; ``simulated`` replaces the model.

    Raises
    ------
    ConfigurationError
        If none is configured, or it cannot be asked.
    """
    own: EvaluationSettings = settings.evaluation
    if own.answers == "function":
        place = own.eval_function or ""
        yield FunctionAnswerer(loaded_function(place), f"function {place}")
        return
    if own.answers == "endpoint":
        from combee.adapters.http.scorer import EndpointScorer  # noqa: PLC0415 - httpx loads slowly

        scorer = EndpointScorer(own.eval_endpoint or "", timeout_s=settings.model.model_timeout_s)
        try:
            yield FunctionAnswerer(scorer, f"endpoint {scorer.shown}")
        finally:
            await scorer.close()
        return
    if simulated is not None:
        yield ModelAnswerer(simulated, "simulated, in this process", scorer=own.eval_scorer)
        return
    chosen = evaluation_model(settings)
    model = language_model(chosen)
    judging = evaluation_model(settings, own.eval_judge) if own.eval_judge else None
    judge = language_model(judging) if judging else None
    try:
        yield ModelAnswerer(
            model,
            _called(chosen),
            scorer=own.eval_scorer,
            judge=judge,
            judge_name=_called(judging) if judging else "",
        )
    finally:
        await model.close()
        if judge is not None:
            await judge.close()


@asynccontextmanager
async def evaluation_judge(settings: Settings, log: Log, clock: Clock) -> AsyncIterator[EvaluationJudge]:
    """Yield the judge "evaluate".

    Raises
    ------
    ConfigurationError
        If there are no held-out questions, or nothing answers them.
    """
    questions, model = held_out(settings), evaluation_model(settings)
    async with answerer(settings) as who:
        evaluator = Evaluator(
            log, who, clock, concurrency=model.llm_concurrency, caps=evaluation_caps(settings)
        )
        yield EvaluationJudge(
            evaluator, questions, clock, margin=settings.gate.gate_margin, judged_by=who.name
        )


def evaluation_caps(settings: Settings) -> SpendPolicy:
    """Return the caps on evaluations, at the prices of the answering model."""
    return replace(
        settings.spend.policy(evaluation_model(settings).model),
        daily_tokens=settings.evaluation.eval_daily_tokens,
        daily_cost=None,
    )


def _text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"COMBEE_EVAL_QUESTIONS: {file} cannot be read: {error}") from error


def held_out(settings: Settings, read: Callable[[str], str] = _text) -> list[Question]:
    """Return the configured questions; ``read`` returns a file's text.

    Raises
    ------
    ConfigurationError
        If there are none, or the file holds invalid lines.
    """
    file = settings.evaluation.eval_questions
    if file is None:
        raise ConfigurationError(
            "no held-out questions: give --questions FILE, or set COMBEE_EVAL_QUESTIONS (ACE samples, JSON lines)"
        )
    rejected: list[str] = []
    questions = read_questions(
        lines_of(read(str(file))), lambda line, why: rejected.append(f"{file}:{line}: {why}")
    )
    if settings.evaluation.eval_scorer == "regex":
        rejected += [why for question in questions if (why := bad_pattern(question))]
    if rejected:
        raise ConfigurationError(
            f"{len(rejected)} lines are not questions, and a score over the others would not be comparable:"
            f" {'; '.join(rejected[:MAX_NAMED])}"
        )
    if not questions:
        raise ConfigurationError(f"{file} is empty: it has no questions")
    return questions


def _called(model: ModelSettings) -> str:
    """Return a model's name, and its server if set: two servers may give the same name to two models."""
    if not model.base_url:
        return model.model or ""
    parts = urlsplit(model.base_url)
    return (
        f"{model.model} at {parts.hostname}:{parts.port}{parts.path}"
        if parts.port
        else f"{model.model} at {parts.hostname}{parts.path}"
    )
