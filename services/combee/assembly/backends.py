"""The configured backends: the Kafka cluster with its topics, and the language model."""

from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog
from pydantic import SecretStr

from combee.adapters.extras import pip_install
from combee.adapters.kafka import KafkaAdmin, KafkaLog
from combee.adapters.kafka.connection import Connection
from combee.adapters.openai.names import Azure, Server, resolve_embedding, resolve_model
from combee.adapters.ports import ConfigurationError, OnModelCall
from combee.core.log import layout
from combee.core.names.sources import Check, KnownSources, with_secret
from combee.core.text.similarity.embeddings import model_and_thresholds
from combee.process.settings.loading import Settings
from combee.process.settings.model import ModelSettings
from combee.process.settings.sources import DeclaredSource, SourceSettings
from combee_schemas.base import ProvenBy
from combee_schemas.topics import BROKERS_TIME, FORMAT_MARK, REFLECTIONS, RESTORING, TIMES

if TYPE_CHECKING:
    from combee.adapters.openai.embedder import OpenAIEmbedder
    from combee.adapters.openai.model import OpenAIModel

logger = structlog.get_logger()

NO_MODEL = (
    "no model is configured: set COMBEE_MODEL or --model (and COMBEE_BASE_URL, OPENAI_API_KEY as your server needs),"
    " or use --simulated for the stand-in model"
)


def connection(settings: Settings, bootstrap_servers: str) -> Connection:
    """Return this process's connection settings for the cluster."""
    return Connection.secured(
        settings.kafka,
        bootstrap_servers=bootstrap_servers,
        prefix=settings.kafka.topic_prefix,
        slot=settings.worker.slot,
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
        api_key=_revealed(settings.api_key),
        azure=_azure(settings),
        timeout_s=settings.model_timeout_s,
        concurrency=settings.llm_concurrency,
        requests_per_minute=settings.requests_per_minute,
        tokens_per_minute=settings.tokens_per_minute,
        on_call=on_call,
    )


def embedder(settings: ModelSettings, on_call: OnModelCall = lambda _call: None) -> "OpenAIEmbedder | None":
    """Return the embedding model; None: none is configured.

    Raises
    ------
    ConfigurationError
        If it cannot be asked.
    """
    if settings.embedding_model is None:
        return None
    from combee.adapters.openai.embedder import OpenAIEmbedder  # noqa: PLC0415 - as above

    name, server = embedding_address(settings)
    return OpenAIEmbedder(model=name, server=server, timeout_s=settings.model_timeout_s, on_call=on_call)


def model_address(settings: ModelSettings) -> tuple[str, Server]:
    """Return the name of the model that is configured, and its server.

    Raises
    ------
    ConfigurationError
        If none is configured, or it cannot be asked.
    """
    if settings.model is None:
        raise ConfigurationError(NO_MODEL)
    return resolve_model(settings.model, settings.base_url, _revealed(settings.api_key), _azure(settings))


def embedding_address(settings: ModelSettings) -> tuple[str, Server]:
    """Return the name of the embedding model that is configured, and its server.

    Raises
    ------
    ConfigurationError
        If it cannot be asked.
    """
    name, _ = model_and_thresholds(settings.embedding_model or "")
    return resolve_embedding(
        name,
        base_url=settings.embedding_base_url,
        api_key=_revealed(settings.embedding_api_key),
        model=settings.model,
        model_url=settings.base_url,
        model_key=_revealed(settings.api_key),
        azure=_azure(settings),
    )


def _azure(settings: ModelSettings) -> Azure:
    return Azure(
        endpoint=settings.azure_endpoint,
        version=settings.azure_api_version,
        key=_revealed(settings.azure_api_key),
        token=_revealed(settings.azure_ad_token),
    )


def _revealed(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret else None


def known_sources(settings: SourceSettings) -> KnownSources:
    """Return the sources and their keys.

    Raises
    ------
    ConfigurationError
        If their file cannot be read, or has a public key and the library for it is missing.
    """
    secret = settings.services_secret()
    return KnownSources(
        checks={source.name: _check(source) for source in settings.file().sources},
        services=with_secret(secret) if secret else None,
        prefix_owner=settings.source_of_prefix,
    )


def _check(source: DeclaredSource) -> tuple[ProvenBy, Check]:
    if source.secret is not None:
        return "secret", with_secret(source.secret.get_secret_value().encode())
    try:
        from combee.adapters.ed25519 import with_public_key  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the public key of {source.name} needs cryptography: {pip_install('signatures')}"
        ) from error
    return "key", with_public_key(b64decode(source.public_key or ""))


async def topic_problems(settings: Settings, connected: Connection) -> list[str]:
    """Return what is wrong with the topics, each with its remedy."""
    want = layout.wanted(settings.kafka.partitions, settings.kafka.scan_partitions)
    async with KafkaAdmin(connected).connected() as admin:
        have = await admin.describe([FORMAT_MARK, *(wanted.topic.name for wanted in want)])
        is_half_restored = await _is_being_restored(admin)
    current = {n: layout.Existing(partitions=t.partitions, config=t.config) for n, t in have.items()}
    prefix = settings.kafka.topic_prefix
    half = [layout.half_restored(prefix)] if is_half_restored else []
    return half + layout.problems(want, current, prefix)


async def nested_prefixes(connected: Connection) -> list[str]:
    """Return the prefixes of other deployments of this cluster that contain this prefix or are contained in it."""
    return layout.nested(connected.prefix, await KafkaAdmin(connected).all_names())


async def _is_being_restored(admin: KafkaAdmin) -> bool:
    try:
        return await admin.has(RESTORING.name)
    except ConfigurationError as error:
        logger.warning(
            "restoring_unseen", reason=str(error), risk="services could start before a restore is complete"
        )
        return False


async def create_topics(settings: Settings, connected: Connection) -> list[str]:
    """Create missing topics; the broker sets the time of records in topics that agents write.

    Return the names of those created.

    Raises
    ------
    ConfigurationError
        If the prefix is new and contains another deployment's or is contained in it; or if its topics have another
        format.
    """
    admin = KafkaAdmin(connected)
    known = await admin.all_names()
    others = layout.nested(connected.prefix, known)
    if others and connected.full(REFLECTIONS.name) not in known:
        raise ConfigurationError(
            f"{connected.prefix} and {', '.join(others)} overlap, so that rights on one would be rights on"
            f" the other: choose another COMBEE_TOPIC_PREFIX,"
            f" such as {connected.prefix.replace('.', '-')}"
        )
    prefix = connected.full("")
    names = (name.removeprefix(prefix) for name in known if name.startswith(prefix))
    if (problem := layout.other_format(connected.prefix, names)) is not None:
        raise ConfigurationError(problem)
    want = layout.wanted(settings.kafka.partitions, settings.kafka.scan_partitions)
    await admin.create(FORMAT_MARK, 1, settings.kafka.replication_factor, {})
    made = await admin.create_all(
        {wanted.topic.name: (wanted.partitions, wanted.topic.config()) for wanted in want},
        settings.kafka.replication_factor,
    )
    await admin.wait_created(
        {wanted.topic.name: wanted.partitions for wanted in want if wanted.topic.name in made}
    )
    there = await admin.describe(wanted.topic.name for wanted in want if wanted.topic.is_open)
    others = [name for name, topic in there.items() if topic.config.get(TIMES) != BROKERS_TIME[TIMES]]
    await admin.configure(dict.fromkeys(others, BROKERS_TIME))
    return made


async def check_topics(settings: Settings, connected: Connection, *, create: bool = False) -> None:
    """Refuse to work on topics that would lose data; with ``create`` missing topics are created first.

    Raises
    ------
    ConfigurationError
        If one is missing or wrong; the message lists the remedies.
    """
    wrong = await topic_problems(settings, connected)
    if wrong and create:
        await create_topics(settings, connected)
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
