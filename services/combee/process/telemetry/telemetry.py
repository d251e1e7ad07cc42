"""Health and metrics of a worker: the hooks that its services call. Here they serve the ready file alone."""

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
    """How far a consumer group is behind in a topic."""

    @property
    def records(self) -> int:
        """Records that it has not committed."""

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest of them was written; None without any."""


LookUpLag = Callable[[], Awaitable[Mapping[str, Lag]]]
"""Returns the lag of a worker's group by topic."""


class WatchedModel(Protocol):
    """A model that says how its server answers."""

    @property
    def refusal(self) -> str | None:
        """Why it refuses for good; None while it does not."""

    @property
    def trouble(self) -> str | None:
        """Why calls fail just now; None while they do not."""


class Telemetry:
    """Telemetry of a worker without a port; ``outage`` says why the log cannot be used now, if so."""

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
        """The batches without a version, where a service knows them."""
        self.paused: Callable[[], Mapping[str, float]] = dict
        """The paused playbooks, and for how many seconds still."""
        self.held: Callable[[], Mapping[str, int]] = dict
        """How many reflections are held back, by what does that, where a service knows it."""
        self._ready_file = ready_file
        self._ready = False
        self._model: WatchedModel | None = None

    def on_turn(self) -> None:
        """A work loop came round with partitions to work on; the first time, the process is ready."""
        self.ready()

    def ready(self) -> None:
        """State readiness; only the first call logs it."""
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

    def forged(self, topic: str) -> None:
        """A record of this topic had a proof of its source that proves nothing."""

    def outcomes(self, statistics: OutcomeStatistics) -> None:
        """These are the statistics of a line's outcomes now."""

    def canary(self, playbook: str, report: CanaryReport | None) -> None:
        """So far is a playbook's canary now; None: it is over."""

    def gate(self, gate: Gate) -> None:
        """The gate of a playbook stands so now."""

    def limiter(self, settings: WorkerSettings) -> DeadLetterLimiter:
        """Return the limiter of this process's dead letters; what it pauses is shown from now on."""
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
        """Judge readiness by these views from now on; ``in_flight`` returns the batches without a version."""
        self.in_flight, self.held = in_flight, held

    def watch_model(self, model: WatchedModel) -> None:
        """Judge readiness by this model, too."""
        self._model = model

    def refusal(self) -> str | None:
        """Return why the model refuses for good, if it does."""
        return self._model.refusal if self._model else None

    def trouble(self) -> str | None:
        """Return why the model does not answer just now, if it does not."""
        return self._model.trouble if self._model else None

    def counted(self, log: Log) -> Log:
        """Return the log as one whose writes are counted."""
        return log

    def counted_model(self, model: LanguageModel, name: str) -> LanguageModel:  # noqa: ARG002 - for a served one
        """Return the model as one whose questions are counted, under its name."""
        return model

    def add(self, families: Callable[[], Iterable[Any]]) -> None:
        """Send these metrics of this process with its own, if any are sent."""

    @asynccontextmanager
    async def served(self, lag: LookUpLag | None = None) -> AsyncIterator[None]:  # noqa: ARG002 - for a served one
        """Serve health and metrics while the context is open."""
        yield
