"""Telemetry of a worker whose metrics are served on a port, or sent: metrics and health."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain

import structlog

from combee.adapters.ports import (
    NO_TRACING,
    Clock,
    CombeeError,
    LanguageModel,
    Log,
    ModelCall,
    Outgoing,
    TopicPartition,
    Tracing,
)
from combee.core.gate.canary_verdict import CanaryReport
from combee.core.gate.gate import Gate
from combee.process.settings.worker import WorkerSettings
from combee.process.telemetry.counted import CountedLog, CountedModel
from combee.process.telemetry.health import Current, Health, pages, serving
from combee.process.telemetry.metrics import Family, Metrics
from combee.process.telemetry.telemetry import LookUpLag, Telemetry
from combee_schemas import topics
from combee_schemas.batch import Batch
from combee_schemas.codec import CodecError
from combee_schemas.dead_letter import HeldBack
from combee_schemas.outcome import OutcomeStatistics

logger = structlog.get_logger()

LOOK_UP_EVERY_S = 10.0
LOOK_TIMEOUT_S = 30.0


class ServedTelemetry(Telemetry):
    """Counts events and determines health; with a port, serves both."""

    def __init__(
        self,
        role: str,
        settings: WorkerSettings,
        port: int | None,
        clock: Clock,
        metrics: Metrics,
        *,
        outage: Callable[[], str | None] = lambda: None,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        super().__init__(role, settings.ready_file, outage=outage, tracing=tracing)
        self._host, self._port = settings.metrics_host, port
        self._others: list[Callable[[], Iterable[Family]]] = []
        self._metrics = metrics
        self.health = Health(
            clock,
            outage=outage,
            refusal=self.refusal,
            trouble=self.trouble,
            paused=lambda: self.paused(),  # noqa: PLW0108 - ``paused`` is replaced later
            dead_letters_per_minute=settings.dead_letters_per_minute,
        )

    def on_turn(self) -> None:
        super().on_turn()
        self.health.turned()

    def turned(self, open_records: Mapping[TopicPartition, int]) -> None:
        self._metrics.open(open_records)
        if open_records:
            self.health.turned()

    def restarted(self, reason: str) -> None:
        self._metrics.restarted(reason)

    def called(self, call: ModelCall) -> None:
        self._metrics.called(call)

    def forged(self, topic: str) -> None:
        self._metrics.forged(topic)

    def outcomes(self, statistics: OutcomeStatistics) -> None:
        self._metrics.outcomes(statistics)

    def canary(self, playbook: str, report: CanaryReport | None) -> None:
        self._metrics.canary(playbook, report)

    def gate(self, gate: Gate) -> None:
        self._metrics.gate(gate)

    def watch(
        self,
        *views: Current,
        in_flight: Callable[[], Sequence[Batch]] = tuple,
        held: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        super().watch(*views, in_flight=in_flight, held=held)
        self.health.views = views

    def counted(self, log: Log) -> Log:
        return CountedLog(log, self._written, self.tracing)

    def counted_model(self, model: LanguageModel, name: str) -> LanguageModel:
        return CountedModel(model, self._metrics, self.tracing, name)

    def _written(self, outgoing: Sequence[Outgoing]) -> None:
        for record in outgoing:
            self._metrics.written(record.topic)
            if record.topic == topics.DEAD_LETTERS.name and record.key != HeldBack.type.encode():
                self.health.dead_lettered()
                self._metrics.dead_lettered((record.key or b"").decode(errors="replace"))
            elif record.topic in {topics.HISTORY.name, topics.DECISIONS.name}:
                self._published(record)

    def _published(self, record: Outgoing) -> None:
        try:
            if record.topic == topics.HISTORY.name:
                self._metrics.published(topics.HISTORY.read(record))
            else:
                self._metrics.decided(topics.DECISIONS.read(record))
        except CodecError as error:
            # No service writes an unreadable record. If there is one all the same, metrics must not stop the worker.
            logger.error("undecodable", topic=record.topic, error=str(error))

    @asynccontextmanager
    async def served(self, lag: LookUpLag | None = None) -> AsyncIterator[None]:
        background = [asyncio.create_task(self.health.beat()), asyncio.create_task(self._look_up(lag))]
        try:
            async with AsyncExitStack() as stack:
                if self._port is not None:
                    served = serving(self._host, self._port, pages(self.health, self._text))
                    address = await stack.enter_async_context(served)
                    logger.info("serving", service=self.role, address=address)
                yield
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)

    def _text(self) -> tuple[str, bytes]:
        self._set_gauges()
        return self._metrics.text()

    def families(self) -> Iterable[Family]:
        """Return the current metrics; of two with the same name the later counts."""
        self._set_gauges()
        return chain(self._metrics.families(), *(families() for families in self._others))

    def add(self, families: Callable[[], Iterable[Family]]) -> None:
        self._others.append(families)

    def _set_gauges(self) -> None:
        self._metrics.conditions(self.health.conditions())
        self._metrics.paused(self.paused())
        self._metrics.held(self.held())

    async def _look_up(self, lag: LookUpLag | None) -> None:
        """Look up the lag every few seconds, also after an error."""
        while True:
            try:
                async with asyncio.timeout(LOOK_TIMEOUT_S):
                    self._metrics.lag(await lag() if lag else {})
                self._metrics.in_flight(self.in_flight())
                self._metrics.looked()
            except (CombeeError, TimeoutError) as error:
                logger.debug("lag_unknown", service=self.role, error=str(error))
            await asyncio.sleep(LOOK_UP_EVERY_S)
