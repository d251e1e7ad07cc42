"""The composition root of a worker: settings become adapters, adapters become one service with its telemetry."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING
from uuid import uuid4

import structlog

from combee.adapters.clock import SystemClock
from combee.adapters.extras import pip_install
from combee.adapters.kafka import KafkaLog, Reachability
from combee.adapters.kafka.connection import Connection
from combee.adapters.ports import NO_TRACING, Clock, ConfigurationError, LanguageModel, Log
from combee.assembly import wiring
from combee.assembly.backends import check_topics, connection, embedder, known_sources, language_model
from combee.control.controller import Controller
from combee.control.outcomes import OutcomeFolder
from combee.core.gate.judges import JUDGES
from combee.core.names.tenants import IN_BATCHES_S, Tenants
from combee.core.text.redact import redacted
from combee.log.evaluation.judge import AskJudge, Judges
from combee.log.inspection.lag import INPUTS, Lags
from combee.process.settings.loading import Settings
from combee.process.settings.worker import SERVICES, WorkerSettings
from combee.process.telemetry.telemetry import Telemetry
from combee.process.worker.dead_letter_limiter import DeadLetterLimiter
from combee.process.worker.outage import OutageMonitor
from combee.process.worker.provenance import Provenance
from combee.process.worker.session import run_sessions, stop_on_signals, together
from combee.process.worker.vectors import Vectors
from combee.process.worker.views import View
from combee.publish.publisher import Publisher
from combee.reflect.handler import ReflectHandler
from combee.scan.handler import ScanHandler
from combee.scan.head_start import HeadStart
from combee.scan.recorded import HashOf, RecordedAnswers, RecordedModel
from combee.shuffle.neighbours import Neighbours
from combee.shuffle.shuffler import Shuffler
from combee_schemas import topics
from combee_schemas.gate import Judge

if TYPE_CHECKING:
    from combee.adapters.opentelemetry.sending import Sending

logger = structlog.get_logger()

DRAIN_MARGIN_S = 3.0
STOP_WITHIN_S = 20.0
OPEN_PER_CALL = 4
"""Number of open records per allowed concurrent model call."""

WrapLog = Callable[[Log], Log]
WrapModel = Callable[[LanguageModel], LanguageModel]


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """The parts that a process gives its service."""

    log: Log
    settings: Settings
    connection: Connection
    stop: asyncio.Event
    telemetry: Telemetry
    wrap_model: WrapModel
    clock: Clock
    answers_from: str | None
    """A topic prefix whose recorded answers are used again."""


Role = Callable[[Worker], Awaitable[None]]
BuildHandler = Callable[[Log, LanguageModel, Clock, DeadLetterLimiter], ReflectHandler | ScanHandler]


async def _reflect(worker: Worker) -> None:
    verifying = _provenance(worker)

    def build(log: Log, model: LanguageModel, clock: Clock, limiter: DeadLetterLimiter) -> ReflectHandler:
        return ReflectHandler(log, model, clock, worker.settings.batch, limiter, provenance=verifying)

    await _ask(worker, build)


async def _scan(worker: Worker) -> None:
    async with _recorded_answers(worker) as known, _vectors(worker) as vectors:

        def build(log: Log, model: LanguageModel, clock: Clock, limiter: DeadLetterLimiter) -> ScanHandler:
            return ScanHandler(
                log, model, clock, limiter=limiter, vectors=vectors, head_start=_head_start(worker, clock)
            )

        def record(model: LanguageModel, hash_of: HashOf) -> LanguageModel:
            return RecordedModel(model, hash_of, worker.log, worker.clock, known=known)

        await _ask(worker, build, record)


def _head_start(worker: Worker, clock: Clock) -> HeadStart | None:
    """Return the head start of first groups; recorded answers and a cache at the full price are not worth a wait."""
    settings = worker.settings
    pays = worker.answers_from is None and settings.spend.has_cheaper_cache(settings.model.model)
    return HeadStart(clock) if pays else None


@asynccontextmanager
async def _vectors(worker: Worker) -> AsyncIterator[Vectors]:
    """Yield the vectors of the configured embedding model; there are none without one."""
    settings = worker.settings.model
    embeds = embedder(settings, worker.telemetry.called)
    try:
        yield Vectors(embeds, settings.embedding_model or "")
    finally:
        if embeds:
            await embeds.close()


@asynccontextmanager
async def _recorded_answers(worker: Worker) -> AsyncIterator[RecordedAnswers | None]:
    """Yield the recorded answers to use again; None: there are none."""
    prefix = worker.answers_from
    if prefix is None:
        yield None
        return
    log = KafkaLog(replace(worker.connection, prefix=prefix))
    try:
        yield RecordedAnswers(log)
    finally:
        await log.close()


def _unrecorded(model: LanguageModel, _hash_of: HashOf) -> LanguageModel:
    return model


async def _ask(
    worker: Worker,
    build: BuildHandler,
    record: Callable[[LanguageModel, HashOf], LanguageModel] = _unrecorded,
) -> None:
    """Run a service that asks a model; the model is watched, counted, recorded and wrapped."""
    settings, telemetry = worker.settings, worker.telemetry
    watched = language_model(settings.model, telemetry.called)
    telemetry.watch_model(watched)
    model = worker.wrap_model(
        record(telemetry.counted_model(watched, settings.model.model or ""), watched.request)
    )
    limiter = telemetry.limiter(settings.worker)
    handler = build(worker.log, model, worker.clock, limiter)
    telemetry.watch(handler.playbooks.view)
    try:
        await wiring.run_handler(
            worker.log,
            handler,
            worker.clock,
            worker.stop,
            max_open=OPEN_PER_CALL * settings.model.llm_concurrency,
            drain_s=settings.model.model_timeout_s + DRAIN_MARGIN_S,
            limiter=limiter,
            on_ready=telemetry.ready,
            on_turn=telemetry.turned,
            tracing=telemetry.tracing,
        )
    finally:
        await model.close()


def _provenance(worker: Worker) -> Provenance:
    settings = worker.settings.sources
    return Provenance(
        known_sources(settings),
        services_secret=settings.services_secret(),
        on_forged=worker.telemetry.forged,
    )


async def _shuffle(worker: Worker) -> None:
    settings = worker.settings
    # Under a supervisor this folder lies in the supervisor's, which is deleted even after a kill -9 of this process.
    supervised = settings.worker.ready_file.parent if settings.worker.ready_file else None
    with tempfile.TemporaryDirectory(prefix="combee-shuffle-", dir=supervised) as folder:
        async with _vectors(worker) as vectors:
            await _run_shuffle(worker, Path(folder), vectors)


async def _run_shuffle(worker: Worker, folder: Path, vectors: Vectors) -> None:
    from combee.shuffle import app as faust_app  # noqa: PLC0415 - only this worker loads Faust

    settings, telemetry = worker.settings, worker.telemetry
    shuffler = Shuffler(
        worker.log,
        worker.clock,
        settings.batch,
        settings.spend.policy(settings.model.model),
        budget_tokens=settings.playbook.playbook_tokens,
        neighbours=Neighbours(vectors),
        tenants=Tenants(settings.tenants.limits(), burst_s=IN_BATCHES_S),
        provenance=_provenance(worker),
        tracing=telemetry.tracing,
    )
    telemetry.watch(shuffler.playbooks.view, shuffler.sizes, in_flight=shuffler.in_flight, held=shuffler.held)
    app = faust_app.build_app(worker.connection, folder)
    delivery = faust_app.session(app, shuffler, worker.connection, worker.stop, telemetry.on_turn)
    await wiring.run_shuffle(shuffler, delivery)


async def _publish(worker: Worker) -> None:
    settings = worker.settings
    spending = settings.spend.policy(settings.model.model)
    publisher = Publisher(
        worker.log,
        worker.clock,
        budget_tokens=settings.playbook.playbook_tokens,
        spending=spending,
        gates=settings.gates,
        on_gate=worker.telemetry.gate,
        tracing=worker.telemetry.tracing,
    )
    await publisher.session(worker.stop, worker.telemetry.on_turn)


async def _control(worker: Worker) -> None:
    controller = Controller(worker.log, worker.clock, worker.settings.sizing.policy())
    outcomes = OutcomeFolder(
        worker.log,
        worker.clock,
        worker.telemetry.outcomes,
        worker.telemetry.canary,
        _provenance(worker),
        worker.telemetry.tracing,
    )
    worker.telemetry.watch(controller.playbooks.view, controller.sizes)
    sizing = wiring.run_control(controller, worker.stop, worker.telemetry.on_turn)
    await together(sizing, wiring.run_outcomes(outcomes, worker.stop))


async def _evaluate(worker: Worker) -> None:
    settings, telemetry = worker.settings, worker.telemetry
    async with open_judges(settings, worker.log, worker.clock) as asked:
        changed = asyncio.Event()
        labels = View(worker.log, topics.LABELS, on_change=lambda _key, _label: changed.set())
        telemetry.watch(labels)
        judging = Judges(worker.log, asked, telemetry.tracing)
        await wiring.run_evaluate(judging, labels, changed, worker.stop, telemetry.on_turn)


async def _gateway(worker: Worker) -> None:
    try:
        from combee.gateway import server  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"the gateway needs {error.name}: {pip_install('gateway')}") from error
    mounts = []
    if worker.settings.gateway.dashboard and find_spec("nicegui") is None:
        logger.info("no_dashboard", reason=f"nicegui is missing: {pip_install('dashboard')}")
    elif worker.settings.gateway.dashboard:
        from combee.dashboard import mount  # noqa: PLC0415 - also in the gateway's extra

        mounts.append(mount)
    sources = partial(known_sources, worker.settings.sources)
    await server.run(worker.log, worker.settings, worker.stop, worker.telemetry, mounts, sources)


def check_gateway(settings: Settings) -> None:
    """Refuse settings with which the gateway would not start.

    Raises
    ------
    CombeeError
        If its keys cannot be read, or it has none and others could reach it.
    """
    from combee.gateway.access.keys import keyring  # noqa: PLC0415 - an extra
    from combee.gateway.server import check_bind  # noqa: PLC0415 - the same

    check_bind(settings.gateway, keyring(settings.gateway))


async def check_evaluate(settings: Settings) -> None:
    """Refuse settings with which the service ``evaluate`` would not start; no broker is asked.

    Raises
    ------
    ConfigurationError
        If no gate asks it, or a judge lacks a setting.
    """
    log = KafkaLog(connection(settings, settings.kafka.bootstrap_servers or ""))
    async with open_judges(settings, log, SystemClock()):
        pass


ROLES: Mapping[str, Role] = dict(zip(SERVICES, (_control, _publish, _scan, _shuffle, _reflect), strict=True))
JUDGING: Mapping[str, Role] = {"evaluate": _evaluate}
"""The service that asks judges about candidates, if a gate needs one."""
FRONTS: Mapping[str, Role] = {"gateway": _gateway}
"""Interfaces for people and agents; they need an extra."""


def judges(settings: Settings) -> tuple[str, ...]:
    """Return the services that ask judges, if a gate of these settings needs one."""
    return tuple(JUDGING) if _asked(settings) else ()


def _asked(settings: Settings) -> list[Judge]:
    needed = settings.gates.all_judges
    return [judge for judge, opener in JUDGES.items() if opener and judge in needed]


@asynccontextmanager
async def open_judges(settings: Settings, log: Log, clock: Clock) -> AsyncIterator[Mapping[Judge, AskJudge]]:
    """Yield the judges that these settings ask and the service ``evaluate`` runs, by name.

    Raises
    ------
    ConfigurationError
        If there are none, or a judge lacks a setting.
    """
    asked = _asked(settings)
    if not asked:
        raise ConfigurationError("COMBEE_GATE names no judge of this service: it has nothing to do")
    async with AsyncExitStack() as opened:
        yield {
            judge: await opened.enter_async_context(resolve_name(JUDGES[judge])(settings, log, clock))
            for judge in asked
        }


def sending_of(role: str, settings: WorkerSettings) -> "Sending | None":
    """Return the sender of a worker's spans and metrics; None: they are not sent."""
    if settings.otel_endpoint is None:
        return None
    try:
        from combee.adapters.opentelemetry.sending import Sending  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        # Not an error: the machine's operator may set this variable for all programs.
        logger.warning("otlp_not_sent", reason=f"{error.name} is missing: {pip_install('otel')}")
        return None
    instance = uuid4().hex if settings.slot is None else str(settings.slot)
    return Sending(
        settings.otel_endpoint, service=role, instance=instance, version=version("combee"), redact=redacted
    )


def telemetry_of(
    role: str,
    settings: Settings,
    outage: Callable[[], str | None] = lambda: None,
    sending: "Sending | None" = None,
) -> Telemetry:
    """Return the telemetry of a worker: a port serves health and metrics, ``sending`` sends metrics."""
    worker = settings.worker
    if worker.metrics_port is None and sending is None:
        return Telemetry(role, worker.ready_file, outage=outage)
    from combee.process.telemetry.metrics import Metrics, new_registry  # noqa: PLC0415 - loads the metrics library
    from combee.process.telemetry.served import ServedTelemetry  # noqa: PLC0415 - the same

    prices = settings.spend.policy(settings.model.model)
    metrics = Metrics(
        new_registry(),
        SystemClock(),
        service=role,
        slot=worker.slot,
        cost=prices.cost,
    )
    telemetry = ServedTelemetry(
        role,
        worker,
        worker.metrics_port,
        SystemClock(),
        metrics,
        outage=outage,
        tracing=sending.tracing if sending else NO_TRACING,
    )
    if sending is not None:
        sending.export(telemetry.families)
    return telemetry


async def run_worker(
    role: str,
    settings: Settings,
    bootstrap_servers: str,
    *,
    answers_from: str | None = None,
    wrap_log: WrapLog = lambda log: log,
    wrap_model: WrapModel = lambda model: model,
) -> None:
    """Run one service until SIGTERM or SIGINT, then drain; wait for brokers that are away.

    The service uses the log and the model as the two wrappers return them; fault tests inject faults there.

    Raises
    ------
    FatalError
        An error that needs an operator.
    """
    stop, clock = asyncio.Event(), SystemClock()
    stop_on_signals(stop, within_s=settings.model.model_timeout_s + STOP_WITHIN_S)
    connected = connection(settings, bootstrap_servers)
    log, reachability = KafkaLog(connected), Reachability(connected)
    monitor = OutageMonitor(reachability.check, clock, service=role, where=bootstrap_servers)
    sending = sending_of(role, settings.worker)
    telemetry = telemetry_of(role, settings, monitor.outage, sending)
    seen = telemetry.counted(wrap_log(log))

    async def session(stopping: asyncio.Event) -> None:
        await check_topics(settings, connected)
        worker = Worker(
            log=seen,
            settings=settings,
            connection=connected,
            stop=stopping,
            telemetry=telemetry,
            wrap_model=wrap_model,
            clock=clock,
            answers_from=answers_from,
        )
        await {**ROLES, **JUDGING, **FRONTS}[role](worker)

    try:
        async with telemetry.served(Lags(log, role).look if role in INPUTS else None):
            work = run_sessions(role, session, stop, clock, telemetry.restarted, monitor.answers)
            await together(work, monitor.run())
    finally:
        await reachability.close()
        await log.close()
        if sending is not None:
            await asyncio.to_thread(sending.close)
    logger.info("stopped", service=role)
