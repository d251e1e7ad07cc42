"""The backends that the settings name: the Kafka cluster with its topics, the language model, and who evaluates."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import structlog

from combee.adapters.kafka import KafkaAdmin, KafkaLog
from combee.adapters.kafka.connection import Connection, security_options
from combee.adapters.openai.names import resolve_embedding
from combee.core import layout
from combee.evaluation.answering import Answerer, FunctionAnswerer, ModelAnswerer, loaded_function
from combee.ports import ConfigurationError, LanguageModel, OnModelCall
from combee.settings.evaluation import EvaluationSettings
from combee.settings.loading import Settings
from combee.settings.model import ModelSettings
from combee_schemas.topics import RESTORING

if TYPE_CHECKING:
    from combee.adapters.openai.embedder import OpenAIEmbedder
    from combee.adapters.openai.model import OpenAIModel

logger = structlog.get_logger()

NO_MODEL = (
    "no model is configured: set COMBEE_MODEL or --model (and COMBEE_BASE_URL, OPENAI_API_KEY as your server needs),"
    " or use --simulated for the stand-in model"
)


def connection(settings: Settings, bootstrap_servers: str) -> Connection:
    """Return how this process reaches the cluster."""
    kafka = settings.kafka
    return Connection(
        bootstrap_servers=bootstrap_servers,
        prefix=kafka.topic_prefix,
        slot=settings.worker.slot,
        session_timeout_ms=int(kafka.session_timeout_s * 1000),
        security=security_options(
            kafka.security_protocol,
            mechanism=kafka.sasl_mechanism,
            username=kafka.sasl_username,
            password=kafka.sasl_password.get_secret_value() if kafka.sasl_password else None,
            cafile=kafka.ssl_cafile,
        ),
    )


def language_model(settings: ModelSettings, on_call: OnModelCall = lambda _call: None) -> "OpenAIModel":
    """Return the configured model.

    Raises
    ------
    ConfigurationError
        If none is configured, or it cannot be asked.
    """
    from combee.adapters.openai.model import OpenAIModel  # noqa: PLC0415 - only workers that ask load the SDK

    if settings.model is None:
        raise ConfigurationError(NO_MODEL)
    return OpenAIModel(
        model=settings.model,
        base_url=settings.base_url,
        api_key=settings.api_key.get_secret_value() if settings.api_key else None,
        timeout_s=settings.model_timeout_s,
        concurrency=settings.llm_concurrency,
        requests_per_minute=settings.requests_per_minute,
        tokens_per_minute=settings.tokens_per_minute,
        max_output_tokens=settings.max_output_tokens,
        on_call=on_call,
    )


def embedder(settings: ModelSettings, on_call: OnModelCall = lambda _call: None) -> "OpenAIEmbedder | None":
    """Return the configured embedding model, if one is.

    Raises
    ------
    ConfigurationError
        If it cannot be asked.
    """
    from combee.adapters.openai.embedder import OpenAIEmbedder  # noqa: PLC0415 - as above

    if settings.embedding_model is None:
        return None
    name, url, key = embedding_address(settings)
    return OpenAIEmbedder(
        model=name, base_url=url, api_key=key, timeout_s=settings.model_timeout_s, on_call=on_call
    )


def embedding_address(settings: ModelSettings) -> tuple[str, str, str]:
    """Return the name, the base URL and the key of the embedding model that is configured.

    Raises
    ------
    ConfigurationError
        If it cannot be asked.
    """
    own, models = settings.embedding_api_key, settings.api_key
    return resolve_embedding(
        settings.embedding_model or "",
        base_url=settings.embedding_base_url,
        api_key=own.get_secret_value() if own else None,
        model=settings.model,
        model_url=settings.base_url,
        model_key=models.get_secret_value() if models else None,
    )


def evaluation_model(settings: Settings, name: str | None = None) -> ModelSettings:
    """Return the model that answers held-out questions; what is not set for it is as the services have it."""
    own, model = settings.evaluation, settings.model
    changes: dict[str, object] = {"model": name or own.eval_model or model.model}
    if own.eval_base_url:
        # The services' key belongs to the services' server.
        changes |= {"base_url": own.eval_base_url, "api_key": own.eval_api_key}
    elif own.eval_api_key:
        changes |= {"api_key": own.eval_api_key}
    return model.model_copy(update=changes)


@asynccontextmanager
async def answerer(settings: Settings, simulated: LanguageModel | None = None) -> AsyncIterator[Answerer]:
    """Yield who answers held-out questions; ``simulated`` stands in for the model.

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


def _called(model: ModelSettings) -> str:
    """Return a model's name, and its server where one is named: two servers may give one name to two models."""
    if not model.base_url:
        return model.model or ""
    parts = urlsplit(model.base_url)
    return (
        f"{model.model} at {parts.hostname}:{parts.port}{parts.path}"
        if parts.port
        else f"{model.model} at {parts.hostname}{parts.path}"
    )


async def topic_problems(settings: Settings, connected: Connection) -> list[str]:
    """Return what is wrong with the topics, each with its remedy."""
    want = layout.wanted(settings.kafka.partitions, settings.kafka.scan_partitions)
    admin = KafkaAdmin(connected)
    have = await admin.describe(wanted.topic.name for wanted in want)
    current = {n: layout.Existing(partitions=t.partitions, config=t.config) for n, t in have.items()}
    prefix = settings.kafka.topic_prefix
    half = [layout.half_restored(prefix)] if await _is_being_restored(admin) else []
    return half + layout.problems(want, current, prefix)


async def _is_being_restored(admin: KafkaAdmin) -> bool:
    try:
        return await admin.has(RESTORING.name)
    except ConfigurationError as error:
        logger.warning(
            "restoring_unseen", reason=str(error), risk="work could begin before a restore is done"
        )
        return False


async def create_topics(settings: Settings, connected: Connection) -> list[str]:
    """Create the topics that are missing; return their names."""
    admin = KafkaAdmin(connected)
    want = layout.wanted(settings.kafka.partitions, settings.kafka.scan_partitions)
    replication = settings.kafka.replication_factor
    made = [
        wanted.topic.name
        for wanted in want
        if await admin.create(wanted.topic.name, wanted.partitions, replication, wanted.topic.config())
    ]
    await admin.wait_created(
        {wanted.topic.name: wanted.partitions for wanted in want if wanted.topic.name in made}
    )
    return made


async def check_topics(settings: Settings, connected: Connection) -> None:
    """Refuse to work on topics that would lose data.

    Raises
    ------
    ConfigurationError
        If one is missing or wrong; the message lists the remedies.
    """
    wrong = await topic_problems(settings, connected)
    if wrong:
        raise ConfigurationError("the topics are not as they must be:\n  " + "\n  ".join(wrong))


@asynccontextmanager
async def opened(settings: Settings, bootstrap_servers: str) -> AsyncIterator[KafkaLog]:
    """Yield the log after checking its topics.

    Raises
    ------
    FatalError
        If a topic is missing or wrong; the message lists the remedies.
    """
    connected = connection(settings, bootstrap_servers)
    await check_topics(settings, connected)
    log = KafkaLog(connected)
    try:
        yield log
    finally:
        await log.close()
