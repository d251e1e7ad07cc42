"""Telemetry: the hooks through which a process tells of itself. Here the ready file alone; the rest costs a port."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import structlog

from combee.clock import SystemClock
from combee.ports import LanguageModel, Log, ModelCall, TopicPartition
from combee.settings.loading import Settings
from combee.settings.worker import WorkerSettings
from combee.telemetry.health import Current
from combee.worker.dead_letter_limiter import DeadLetterLimiter
from combee_schemas.batch import Batch

logger = structlog.get_logger()


class AskedModel(Protocol):
    """A model that says how its server answers."""

    @property
    def refusal(self) -> str | None:
        """Why it refuses for good; None while it does not."""

    @property
    def trouble(self) -> str | None:
        """Why calls fail just now; None while they do not."""


class Telemetry:
    """For the composition root; ``away`` says why the log cannot be used now, if so."""

    def __init__(
        self, role: str, ready_file: Path | None, *, away: Callable[[], str | None] = lambda: None
    ) -> None:
        self.role = role
        self.away = away
        self.flying: Callable[[], Sequence[Batch]] = tuple
        """The batches without a version, where somebody knows them."""
        self.paused: Callable[[], Mapping[str, float]] = dict
        """Which playbooks' records are held back, and for how many seconds still."""
        self._ready_file = ready_file
        self._ready = False
        self._asked: AskedModel | None = None

    def on_turn(self) -> None:
        """A work loop came round with partitions to work on; the first time, the process is ready."""
        self.ready()

    def ready(self) -> None:
        """State readiness; only the first call says so aloud."""
        if self._ready:
            return
        self._ready = True
        logger.info("ready", service=self.role)
        if self._ready_file is not None:
            self._ready_file.touch()

    def turned(self, open_records: Mapping[TopicPartition, int]) -> None:
        """The consume loop came round with so many records open, by partition that is ours."""

    def restarted(self, reason: str) -> None:
        """A session ended by trouble."""

    def limiter(self, settings: WorkerSettings) -> DeadLetterLimiter:
        """Return what limits this process's dead letters; from now on it is told what that holds back."""
        limiter = DeadLetterLimiter(SystemClock(), service=self.role, limit=settings.dead_letters_per_minute)
        self.paused = limiter.paused
        return limiter

    def called(self, call: ModelCall) -> None:
        """A model call ended."""

    def watch(
        self,
        *views: Current,  # noqa: ARG002 - for those that look at them
        flying: Callable[[], Sequence[Batch]] = tuple,
    ) -> None:
        """Judge readiness by these views from now on; ``flying`` returns the batches without a version."""
        self.flying = flying

    def watch_model(self, model: AskedModel) -> None:
        """Judge readiness by this model, too."""
        self._asked = model

    def refusal(self) -> str | None:
        """Return why the model refuses for good, if it does."""
        return self._asked.refusal if self._asked else None

    def trouble(self) -> str | None:
        """Return why the model does not answer just now, if it does not."""
        return self._asked.trouble if self._asked else None

    def counted(self, log: Log) -> Log:
        """Return the log as one whose writes are counted."""
        return log

    def counted_model(self, model: LanguageModel) -> LanguageModel:
        """Return the model as one whose questions are counted."""
        return model

    @asynccontextmanager
    async def served(self, log: Log) -> AsyncIterator[None]:  # noqa: ARG002 - for those that look at it
        """Tell while the context is open."""
        yield


def telemetry_of(role: str, settings: Settings, away: Callable[[], str | None] = lambda: None) -> Telemetry:
    """Return how a process tells of itself: with a port for it, by health endpoints and metrics."""
    worker = settings.worker
    if worker.metrics_port is None:
        return Telemetry(role, worker.ready_file, away=away)
    # Only with a port: the library is slow to load.
    from combee.telemetry.metrics import Metrics, new_registry  # noqa: PLC0415
    from combee.telemetry.served import ServedTelemetry  # noqa: PLC0415

    prices = settings.spend.policy(settings.model.model)
    metrics = Metrics(
        new_registry(),
        SystemClock(),
        service=role,
        slot=worker.slot,
        price_in=prices.price_in,
        price_out=prices.price_out,
    )
    return ServedTelemetry(role, worker, worker.metrics_port, SystemClock(), metrics, away=away)
