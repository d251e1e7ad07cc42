"""Health and metrics of a worker: the hooks that its services call. This base class only writes the ready file."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import structlog

from combee.adapters.clock import SystemClock
from combee.adapters.ports import NO_TRACING, LanguageModel, Log, ModelCall, TopicPartition, Tracing
from combee.core.gate.canary_verdict import CanaryReport
from combee.core.gate.gate import Gate
from combee.process.settings.worker import WorkerSettings
from combee.process.telemetry.health import Current
from combee.process.worker.dead_letter_limiter import DeadLetterLimiter
from combee_schemas.batch import Batch
from combee_schemas.outcome import OutcomeStatistics

logger = structlog.get_logger()


class Lag(Protocol):
    """The lag of a consumer group in a topic."""

    @property
    def records(self) -> int:
        """Number of records that it has not committed."""

    @property
    def oldest_ms(self) -> int | None:
        """Time at which the oldest of them was written; None if there are none."""


LookUpLag = Callable[[], Awaitable[Mapping[str, Lag]]]
"""Returns the lag of a worker's group by topic."""


class WatchedModel(Protocol):
    """A model that reports how its server answers."""

    @property
    def refusal(self) -> str | None:
        """Why it refuses permanently; None while it does not."""

    @property
    def trouble(self) -> str | None:
        """Why calls fail now; None while they do not."""


class Telemetry:
    """Telemetry of a worker without a port; ``outage`` returns why the log cannot be used now, or None."""

    def __init__(
        self,
        role: str,
        ready_file: Path | None,
        *,
        outage: Callable[[], str | None] = lambda: None,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self.role = role
        self.outage = outage
        self.tracing = tracing
        self.in_flight: Callable[[], Sequence[Batch]] = tuple
        """Returns the batches without a version, in a service that knows them."""
        self.paused: Callable[[], Mapping[str, float]] = dict
        """Returns the remaining seconds of each paused playbook."""
        self.held: Callable[[], Mapping[str, int]] = dict
        """Returns the number of reflections held back, by cause, in a service that knows it."""
        self._ready_file = ready_file
        self._ready = False
        self._model: WatchedModel | None = None

    def on_turn(self) -> None:
        """A work loop made a turn with partitions assigned; after the first turn the process is ready."""
        self.ready()

    def ready(self) -> None:
        """Report readiness; only the first call logs it."""
        if self._ready:
            return
        self._ready = True
        logger.info("ready", service=self.role)
        if self._ready_file is not None:
            self._ready_file.touch()

    def turned(self, open_records: Mapping[TopicPartition, int]) -> None:
        """The consume loop made a turn; ``open_records`` counts open records by assigned partition."""

    def restarted(self, reason: str) -> None:
        """A session ended by trouble."""

    def forged(self, topic: str) -> None:
        """A record of this topic had a forged proof of its source."""

    def outcomes(self, statistics: OutcomeStatistics) -> None:
        """A line has new statistics of outcomes."""

    def canary(self, playbook: str, report: CanaryReport | None) -> None:
        """A playbook's canary has made progress; None: it is over."""

    def gate(self, gate: Gate) -> None:
        """A playbook's gate has changed."""

    def limiter(self, settings: WorkerSettings) -> DeadLetterLimiter:
        """Return the limiter of this process's dead letters; telemetry reports the playbooks that it pauses."""
        limiter = DeadLetterLimiter(SystemClock(), service=self.role, limit=settings.dead_letters_per_minute)
        self.paused = limiter.paused
        return limiter

    def called(self, call: ModelCall) -> None:
        """A model call ended."""

    def watch(
        self,
        *views: Current,  # noqa: ARG002 - for telemetry that serves health
        in_flight: Callable[[], Sequence[Batch]] = tuple,
        held: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """From now on include these views in readiness; ``in_flight`` returns the batches without a version."""
        self.in_flight, self.held = in_flight, held

    def watch_model(self, model: WatchedModel) -> None:
        """Include this model in readiness."""
        self._model = model

    def refusal(self) -> str | None:
        """Return why the model refuses permanently; None: it does not."""
        return self._model.refusal if self._model else None

    def trouble(self) -> str | None:
        """Return why the model does not answer now; None: it answers."""
        return self._model.trouble if self._model else None

    def counted(self, log: Log) -> Log:
        """Return the log with its writes counted."""
        return log

    def counted_model(self, model: LanguageModel, name: str) -> LanguageModel:  # noqa: ARG002 - for a served one
        """Return the model with its questions counted under ``name``."""
        return model

    def add(self, families: Callable[[], Iterable[Any]]) -> None:
        """Send these metrics together with the worker's own, if metrics are sent."""

    @asynccontextmanager
    async def served(self, lag: LookUpLag | None = None) -> AsyncIterator[None]:  # noqa: ARG002 - for a served one
        """Serve health and metrics while the context is open."""
        yield
