"""The composition root: settings become adapters, adapters become services. The only place that knows all."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from combee.adapters.kafka import KafkaAdmin, KafkaLog, Presence
from combee.adapters.kafka.connection import Connection, security_options
from combee.clock import SystemClock
from combee.core import layout
from combee.inspection.lag import INPUTS, Lags
from combee.ports import ConfigurationError, LanguageModel, Log, OnModelCall
from combee.settings.loading import Settings
from combee.settings.methods import configured_method
from combee.settings.model import ModelSettings
from combee.telemetry.telemetry import Telemetry
from combee.worker.dead_letter_limiter import DeadLetterLimiter
from combee.worker.loop import Loop
from combee.worker.retry import OutageMonitor
from combee.worker.session import run_sessions, stop_on_signals, unless

if TYPE_CHECKING:
    from combee.adapters.openai import OpenAIModel
    from combee.reflect.handler import ReflectHandler
    from combee.scan.handler import ScanHandler

logger = structlog.get_logger()

DRAIN_MARGIN_S = 3.0
STOP_WITHIN_S = 20.0
OPEN_PER_CALL = 4
"""Records a worker holds open per model call it may make."""

NO_MODEL = (
    "no model is configured: set COMBEE_MODEL or --model (and COMBEE_BASE_URL, OPENAI_API_KEY as your server needs),"
    " or use --simulated for the stand-in model"
)

WrapLog = Callable[[Log], Log]
WrapModel = Callable[[LanguageModel], LanguageModel]


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
    from combee.adapters.openai import OpenAIModel  # noqa: PLC0415 - only workers that ask load the SDK

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


async def topic_problems(settings: Settings, connected: Connection) -> list[str]:
    """Return what is wrong with the topics, each with its remedy."""
    want = layout.wanted(settings.kafka.partitions, settings.kafka.scan_partitions)
    have = await KafkaAdmin(connected).describe(one.topic.name for one in want)
    found = {n: layout.Found(partitions=t.partitions, config=t.config) for n, t in have.items()}
    return layout.problems(want, found, settings.kafka.topic_prefix)


async def create_topics(settings: Settings, connected: Connection) -> list[str]:
    """Create the topics that are missing; return their names."""
    admin = KafkaAdmin(connected)
    want = layout.wanted(settings.kafka.partitions, settings.kafka.scan_partitions)
    replication = settings.kafka.replication_factor
    made = [
        one.topic.name
        for one in want
        if await admin.create(one.topic.name, one.partitions, replication, one.topic.config())
    ]
    await admin.wait_created({one.topic.name: one.partitions for one in want if one.topic.name in made})
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


def _model(settings: Settings, telemetry: Telemetry, wrap: WrapModel) -> LanguageModel:
    """Return the model, watched, counted and wrapped."""
    asked = language_model(settings.model, telemetry.called)
    telemetry.watch_model(asked)
    return wrap(telemetry.counted_model(asked))


Role = Callable[[Log, Settings, str, asyncio.Event, Telemetry, WrapModel], Awaitable[None]]


async def _with_views(
    work: Coroutine[None, None, None], views: Sequence[Coroutine[None, None, None]]
) -> None:
    """Run ``work``; views beside it end with it, and a view that fails ends all."""
    tasks = [asyncio.create_task(one) for one in (work, *views)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def _asking(
    log: Log,
    handler: "ReflectHandler | ScanHandler",
    model: LanguageModel,
    settings: Settings,
    stop: asyncio.Event,
    telemetry: Telemetry,
    limiter: DeadLetterLimiter,
) -> None:
    """Run the loop of a service that asks a model, its view of the playbooks beside it."""
    view = handler.playbooks.view
    telemetry.watch(view)
    most = OPEN_PER_CALL * settings.model.llm_concurrency
    loop = Loop(log, handler, SystemClock(), max_open=most, on_turn=telemetry.turned, limiter=limiter)
    drained = loop.run(stop, drain_s=settings.model.model_timeout_s + DRAIN_MARGIN_S)
    try:
        await _with_views(_when_current(view.wait_current, telemetry.ready, drained, stop), [view.run()])
    finally:
        await model.close()


async def _reflect(
    log: Log, settings: Settings, _: str, stop: asyncio.Event, telemetry: Telemetry, wrap_model: WrapModel
) -> None:
    from combee.reflect.handler import ReflectHandler  # noqa: PLC0415 - each role loads only its own

    model = _model(settings, telemetry, wrap_model)
    limiter = telemetry.limiter(settings.worker)
    handler = ReflectHandler(log, model, SystemClock(), configured_method(settings.batch), limiter)
    await _asking(log, handler, model, settings, stop, telemetry, limiter)


async def _scan(
    log: Log, settings: Settings, _: str, stop: asyncio.Event, telemetry: Telemetry, wrap_model: WrapModel
) -> None:
    from combee.scan.handler import ScanHandler  # noqa: PLC0415 - each role loads only its own

    model = _model(settings, telemetry, wrap_model)
    limiter = telemetry.limiter(settings.worker)
    handler = ScanHandler(log, model, SystemClock(), carry=settings.batch.carry, limiter=limiter)
    await _asking(log, handler, model, settings, stop, telemetry, limiter)


async def _when_current(
    wait: Callable[[float], Awaitable[None]],
    ready: Callable[[], None],
    work: Coroutine[None, None, None],
    stop: asyncio.Event,
) -> None:
    with closing(work):
        if await unless(stop, wait(60.0)):
            ready()
            await work


async def _shuffle(
    log: Log, settings: Settings, brokers: str, stop: asyncio.Event, telemetry: Telemetry, _: WrapModel
) -> None:
    from combee.shuffle import app as faust_app  # noqa: PLC0415 - Faust is slow to load
    from combee.shuffle.shuffler import Shuffler  # noqa: PLC0415

    prefix = settings.kafka.topic_prefix
    spending = settings.spend.policy(settings.model.model)
    # Under a supervisor the folder lies in its own, which goes even after a kill -9 of this process.
    supervised = settings.worker.ready_file.parent if settings.worker.ready_file else None
    with tempfile.TemporaryDirectory(prefix="combee-shuffle-", dir=supervised) as folder:
        shuffler = Shuffler(log, SystemClock(), settings.batch, spending)
        telemetry.watch(shuffler.playbooks.view, shuffler.sizes, in_flight=shuffler.flying)
        security = connection(settings, brokers).security
        app = faust_app.build_app(settings.kafka, brokers, settings.worker.slot, Path(folder), security)
        await _with_views(
            faust_app.session(app, shuffler, prefix, stop, telemetry.on_turn),
            [shuffler.playbooks.view.run(), shuffler.sizes.run()],
        )


async def _publish(
    log: Log, settings: Settings, _: str, stop: asyncio.Event, telemetry: Telemetry, _wrap: WrapModel
) -> None:
    from combee.publish.publisher import Publisher  # noqa: PLC0415 - each role loads only its own

    spending = settings.spend.policy(settings.model.model)
    publisher = Publisher(
        log, SystemClock(), budget_tokens=settings.playbook.playbook_tokens, spending=spending
    )
    await publisher.session(stop, telemetry.on_turn)


async def _control(
    log: Log, settings: Settings, _: str, stop: asyncio.Event, telemetry: Telemetry, _wrap: WrapModel
) -> None:
    from combee.control.controller import Controller  # noqa: PLC0415 - each role loads only its own

    controller = Controller(log, SystemClock(), settings.sizing.policy())
    telemetry.watch(controller.playbooks.view, controller.sizes)
    await _with_views(
        controller.session(stop, telemetry.on_turn), [controller.playbooks.view.run(), controller.sizes.run()]
    )


async def _gateway(
    log: Log, settings: Settings, _: str, stop: asyncio.Event, telemetry: Telemetry, _wrap: WrapModel
) -> None:
    try:
        from combee.gateway import server  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"the gateway needs {error.name}: pip install 'combee[gateway]'") from error
    mounts = []
    try:
        if settings.gateway.dashboard:
            from combee.dashboard import mount  # noqa: PLC0415 - another one

            mounts.append(mount)
    except ModuleNotFoundError as error:
        logger.info("no_dashboard", reason=f"{error.name} is missing: pip install 'combee[dashboard]'")
    await server.run(log, settings, stop, telemetry, mounts)


ROLES: Mapping[str, Role] = {
    "control": _control,
    "publish": _publish,
    "scan": _scan,
    "shuffle": _shuffle,
    "reflect": _reflect,
}
"""Every service; started in this order, so that each finds its readers there."""
FRONTS: Mapping[str, Role] = {"gateway": _gateway}
"""What people and agents touch, beside the services; it needs an extra."""


def telemetry_of(role: str, settings: Settings, outage: Callable[[], str | None] = lambda: None) -> Telemetry:
    """Return the telemetry of a worker: with a port health and metrics are served there."""
    worker = settings.worker
    if worker.metrics_port is None:
        return Telemetry(role, worker.ready_file, outage=outage)
    from combee.telemetry.metrics import Metrics, new_registry  # noqa: PLC0415 - loads the metrics library
    from combee.telemetry.served import ServedTelemetry  # noqa: PLC0415 - the same

    prices = settings.spend.policy(settings.model.model)
    metrics = Metrics(
        new_registry(),
        SystemClock(),
        service=role,
        slot=worker.slot,
        price_in=prices.price_in,
        price_out=prices.price_out,
    )
    return ServedTelemetry(role, worker, worker.metrics_port, SystemClock(), metrics, outage=outage)


async def run_worker(
    role: str,
    settings: Settings,
    bootstrap_servers: str,
    *,
    wrap_log: WrapLog = lambda log: log,
    wrap_model: WrapModel = lambda model: model,
) -> None:
    """Run one service until SIGTERM or SIGINT, then drain; brokers that are away are waited for.

    The service works on the log and the model as the two wrappers return them; fault tests inject faults there.

    Raises
    ------
    FatalError
        Whatever nobody but an operator can mend.
    """
    stop = asyncio.Event()
    stop_on_signals(stop, within_s=settings.model.model_timeout_s + STOP_WITHIN_S)
    connected = connection(settings, bootstrap_servers)
    log, presence = KafkaLog(connected), Presence(connected)
    monitor = OutageMonitor(presence.ask, SystemClock(), service=role, where=bootstrap_servers)
    telemetry = telemetry_of(role, settings, monitor.outage)
    seen = telemetry.counted(wrap_log(log))

    async def session(stopping: asyncio.Event) -> None:
        await check_topics(settings, connected)
        await {**ROLES, **FRONTS}[role](seen, settings, bootstrap_servers, stopping, telemetry, wrap_model)

    try:
        async with telemetry.served(Lags(log, role).look if role in INPUTS else None):
            work = run_sessions(role, session, stop, SystemClock(), telemetry.restarted, monitor.answers)
            await _with_views(work, [monitor.run()])
    finally:
        await presence.close()
        await log.close()
    logger.info("stopped", service=role)
