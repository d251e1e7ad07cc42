"""The metrics of a process, for Prometheus; docs/reference/metrics.txt lists them with these texts."""

from collections import Counter as Tally
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from platform import python_version
from typing import get_args

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    Metric,
    ProcessCollector,
    generate_latest,
)

from combee.adapters.ports import Clock, ModelCall, TopicPartition
from combee.core.evaluation.outcomes.report import newest_outcomes, success_of
from combee.core.gate.canary_verdict import CanaryReport
from combee.core.gate.gate import Gate
from combee.core.log.fates import Effect
from combee.core.names.tenants import tenant_of
from combee.core.playbook.retention import WARNING_KINDS, share_of, warnings
from combee.core.playbook.spend import Tokens
from combee.process.telemetry.health import Condition
from combee.process.telemetry.telemetry import Lag
from combee_schemas.base import Usage
from combee_schemas.batch import Batch
from combee_schemas.gate import Decision
from combee_schemas.outcome import OutcomeStatistics
from combee_schemas.playbook import AppliedBatch, Audit, Playbook
from combee_schemas.topics import TOPICS

MAX_TENANTS = 100
"""Maximum number of tenants with metrics of their own; later tenants are counted together."""
OTHERS = "(others)"
"""The label of these later tenants; no playbook's name can begin with it."""
MAX_PLAYBOOKS = 100
"""Maximum number of playbooks with labels, the most recent ones: anybody can invent names."""

ARMS, EVIDENCE = ("candidate", "control"), ("acceptance", "worse")
"""Of a canary."""
RESULTS, BOUNDS = ("successes", "failures", "unscored"), ("mean", "low", "high")
"""Of outcomes."""

CALL_SECONDS = (0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300)
BATCH_SECONDS = (0.5, 1, 2, 5, 10, 30, 60, 120, 300, 900, 3600)
HTTP_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60)
SHARES = (0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1)


Family = Metric
"""A metric with its samples."""


def new_registry() -> CollectorRegistry:
    """Return an empty registry: one per process, never the library's global one."""
    return CollectorRegistry()


class _Labelled:
    """The playbooks that have labels; ``forget`` removes the labels of an evicted playbook."""

    def __init__(self, forget: Callable[[str], None]) -> None:
        self._names: OrderedDict[str, bool] = OrderedDict()
        self._forget = forget

    def add(self, name: str, *, is_kept: bool = False) -> None:
        """Give a playbook labels; playbooks with ``is_kept`` are evicted last."""
        self._names.pop(name, None)
        self._names[name] = is_kept
        if len(self._names) > MAX_PLAYBOOKS:
            self.drop(next((old for old, kept in self._names.items() if not kept), next(iter(self._names))))

    def drop(self, name: str) -> None:
        """Remove a playbook's labels, if it has any."""
        if self._names.pop(name, None) is not None:
            self._forget(name)


def _remove(gauge: Gauge, name: str, *values: str) -> None:
    labelled: list[tuple[str, ...]] = [(name, value) for value in values]
    for labels in labelled or [(name,)]:
        with suppress(KeyError):  # prometheus-client before 0.22 raises for a missing one
            gauge.remove(*labels)


class Metrics:
    """All metrics of one process, in the registry it is given. Every label is bounded."""

    def __init__(
        self,
        registry: CollectorRegistry,
        clock: Clock,
        *,
        service: str,
        slot: int | None = None,
        cost: Callable[[Tokens], float] = lambda _: 0.0,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._service = service
        self._cost_of = cost
        self._named = _Labelled(self._forget_retention)
        self._tenants: set[str] = set()
        self._outcomes_of = _Labelled(self._forget_outcomes)
        self._canaries_of = _Labelled(self._forget_canary)
        self._gates_of = _Labelled(self._forget_gate)
        self._oldest_ms: dict[str, int | None] = {}
        self._batch_closed_ms: int | None = None
        self._looked_at = clock.monotonic()
        ProcessCollector(registry=registry)
        info = Info("combee_build", "Version, service and slot of this process; always 1.", registry=registry)
        info.info(
            {
                "version": version("combee"),
                "python": python_version(),
                "service": service,
                "slot": "" if slot is None else str(slot),
            }
        )
        self._make_flow()
        self._make_model()
        self._make_results()

    def _make_flow(self) -> None:
        self._lag_records = self._gauge(
            "combee_lag_records",
            "Offsets that the service's group has not committed; every replica shows the group's number: use max.",
            "service",
            "topic",
        )
        self._lag_seconds = self._gauge(
            "combee_lag_seconds",
            "Age of the oldest uncommitted record; windows make shuffle wait for up to COMBEE_MAX_WAIT_S.",
            "service",
            "topic",
        )
        looked = self._gauge(
            "combee_lag_look_age_seconds", "Time since lag and batches were looked up (every 10 s)."
        )
        looked.set_function(lambda: self._clock.monotonic() - self._looked_at)
        self._open = self._gauge(
            "combee_open_records", "Reflect and scan: open records, begun and not finished.", "topic"
        )
        self._written = self._counter(
            "combee_records_written_total", "Records written: acknowledged or committed.", "topic"
        )
        self._letters = self._counter("combee_dead_letters_total", "Dead letters, by origin.", "topic")
        for topic in TOPICS:
            # A series that begins at 1 has not increased: the alert would not see the first dead letter.
            if self._service in topic.read_by:
                self._letters.labels(topic.name)
        self._forged = self._counter(
            "combee_forged_proofs_total",
            "Reflect, shuffle and control: records with a forged proof of their source.",
            "topic",
        )
        self._paused = self._gauge(
            "combee_paused_playbooks", "Playbooks held back because of too many dead letters."
        )
        self._held = self._gauge(
            "combee_held_reflections",
            "Shuffle: reflections held back by their source's share, their tenant's limits or a spend cap.",
            "why",
        )
        self._restarts = self._counter(
            "combee_session_restarts_total", "Sessions restarted after an error: transient, fenced.", "reason"
        )
        self._conditions = self._gauge(
            "combee_condition", "1 while a condition of /readyz is good, 0 while it is red.", "condition"
        )

    def _make_model(self) -> None:
        self._questions = self._gauge(
            "combee_questions_in_flight",
            "Questions to the model without an answer yet.",
        )
        self._calls = Histogram(
            "combee_model_call_seconds",
            "Model calls: answered, failed (tried again), refused (this prompt or form).",
            ("outcome",),
            buckets=CALL_SECONDS,
            registry=self._registry,
        )
        self._retries = self._counter("combee_model_retries_total", "Model calls repeated after a failure.")
        self._re_asks = self._counter(
            "combee_model_re_asks_total", "Questions repeated after an unusable reply."
        )
        self._tokens = self._counter(
            "combee_model_tokens_total",
            "Tokens read (in) and written (out) by the model; cached: tokens read from its prompt cache.",
            "direction",
        )
        self._cost = self._counter(
            "combee_model_cost_total", "Cost of these tokens at the configured prices."
        )

    def _make_results(self) -> None:
        self._in_flight = self._gauge("combee_batches_in_flight", "Shuffle: batches without a version.")
        age = self._gauge(
            "combee_batch_age_seconds",
            "Shuffle: time since the oldest batch without a version was closed; 0: none.",
        )
        age.set_function(lambda: self._age_s(self._batch_closed_ms))
        self._versions = self._counter(
            "combee_versions_total", "Publish: versions, by batch, import, edit, rollback, revoke …", "origin"
        )
        self._hedges = self._counter(
            "combee_hedged_calls_total",
            "Publish: calls made a second time because they were slow (COMBEE_STRAGGLERS=on).",
        )
        self._batch_seconds = Histogram(
            "combee_batch_seconds",
            "Publish: time from closing a batch to its version.",
            buckets=BATCH_SECONDS,
            registry=self._registry,
        )
        self._retention = self._gauge(
            "combee_retention_ratio",
            "Publish: share of the last batch's reflections that are new or known; for 100 playbooks.",
            "playbook",
        )
        self._omitted = self._gauge(
            "combee_omitted_ratio",
            "Publish: share of the last batch's reflections that was omitted: neither in the playbook nor"
            " dropped by name.",
            "playbook",
        )
        self._said = self._gauge(
            "combee_said_ratio",
            "Publish: share of the last batch's reflections that the model accounted for.",
            "playbook",
        )
        self._verified = self._gauge(
            "combee_verified_ratio",
            "Publish: share of the last batch's reflections that were verified in what the model wrote.",
            "playbook",
        )
        self._warned = self._gauge(
            "combee_retention_warning",
            "Publish: 1 if combee doctor warns of what was omitted, or of what is unverified, else 0.",
            "playbook",
            "warning",
        )
        self._fates = self._counter(
            "combee_batch_reflections_total",
            "Publish: reflections of published batches that were new, known, dropped or omitted.",
            "fate",
        )
        self._tenant_reflections = self._counter(
            "combee_tenant_reflections_total",
            "Publish: reflections of published batches, for 100 tenants; later tenants are under (others).",
            "tenant",
        )
        self._tenant_tokens = self._counter(
            "combee_tenant_tokens_total", "Publish: tokens of these batches, read and written.", "tenant"
        )
        self._tenant_cost = self._counter(
            "combee_tenant_cost_total", "Publish: cost of these tokens at the configured prices.", "tenant"
        )
        self._retentions = Histogram(
            "combee_batch_retention_ratio",
            "Publish: retention of every batch.",
            buckets=SHARES,
            registry=self._registry,
        )

        self._outcomes = self._gauge(
            "combee_outcome_runs",
            "Control: runs of the newest version that any run used, by result; for 100 playbooks.",
            "playbook",
            "result",
        )
        self._success = self._gauge(
            "combee_outcome_success_ratio",
            "Control: share of successes among these runs, and the bounds of its 95 % interval.",
            "playbook",
            "bound",
        )

        self._canary_callers = self._gauge(
            "combee_canary_callers",
            "Control: callers of a canary with a scored run, by arm; for 100 playbooks.",
            "playbook",
            "arm",
        )
        self._canary_evidence = self._gauge(
            "combee_canary_e_value",
            "Control: evidence that a canary's candidate is not worse by the margin, and that it is worse;"
            " 1/alpha decides.",
            "playbook",
            "of",
        )

        self._production = self._gauge(
            "combee_gate_production_version",
            "Publish: version of a gated playbook that agents read; 0: none yet; for 100 playbooks.",
            "playbook",
        )
        self._candidate = self._gauge(
            "combee_gate_candidate_since_seconds",
            "Publish: Unix time since which the candidate is judged; absent: there is none.",
            "playbook",
        )
        self._decisions = self._counter(
            "combee_gate_decisions_total",
            "Publish: decisions about production versions, by kind.",
            "decided",
        )

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self._registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self._registry)

    def _age_s(self, since_ms: int | None) -> float:
        return 0.0 if since_ms is None else max(0, self._clock.now_ms() - since_ms) / 1000

    def text(self) -> tuple[str, bytes]:
        """Return content type and body of ``/metrics``."""
        return CONTENT_TYPE_LATEST, generate_latest(self._registry)

    def families(self) -> Iterable[Family]:
        """Return the same metrics as families, for other formats."""
        return self._registry.collect()

    # ---- what happened

    def called(self, call: ModelCall) -> None:
        """A model call ended."""
        self._calls.labels(call.outcome).observe(call.seconds)
        self._retries.inc(call.attempt > 1)
        self._tokens.labels("in").inc(call.tokens_in)
        self._tokens.labels("cached").inc(call.cached_tokens)
        self._tokens.labels("out").inc(call.tokens_out)
        self._cost.inc(self._cost_of(call))

    def asking(self) -> None:
        """A question is put to the model."""
        self._questions.inc()

    def asked(self, usage: Usage) -> None:
        """A question ended, with or without an answer."""
        self._questions.dec()
        self._re_asks.inc(usage.re_asks)

    def written(self, topic: str) -> None:
        """A record was written."""
        self._written.labels(topic).inc()

    def dead_lettered(self, origin: str) -> None:
        """A dead letter was written."""
        self._letters.labels(origin).inc()

    def forged(self, topic: str) -> None:
        """A record had a forged proof of its source."""
        self._forged.labels(topic).inc()

    def restarted(self, reason: str) -> None:
        """A session ended by trouble."""
        self._restarts.labels(reason).inc()

    def published(self, playbook: Playbook) -> None:
        """A version was written."""
        self._versions.labels(playbook.origin).inc()
        batch = playbook.batch
        if batch is None:
            return
        self._hedges.inc(batch.usage.hedges)
        self._count_for_tenant(playbook.name, batch)
        self._batch_seconds.observe(max(0, playbook.created_at_ms - batch.plan.closed_at_ms) / 1000)
        if batch.audit:
            self._count_audit(playbook, batch.audit)

    def _count_audit(self, playbook: Playbook, audit: Audit) -> None:
        name, raised = playbook.name, warnings(playbook)
        self._retentions.observe(share_of(audit.kept, audit))
        self._retention.labels(name).set(share_of(audit.kept, audit))
        self._omitted.labels(name).set(share_of(audit.omitted, audit))
        self._said.labels(name).set(share_of(audit.said, audit))
        self._verified.labels(name).set(share_of(audit.verified, audit))
        for kind in WARNING_KINDS:
            self._warned.labels(name, kind).set(kind in raised)
        self._named.add(name, is_kept=bool(raised))
        for fate in get_args(Effect):
            self._fates.labels(fate).inc(getattr(audit, fate))

    def _forget_retention(self, name: str) -> None:
        for gauge in (self._retention, self._omitted, self._said, self._verified):
            _remove(gauge, name)
        _remove(self._warned, name, *WARNING_KINDS)

    def _count_for_tenant(self, name: str, batch: AppliedBatch) -> None:
        tenant = tenant_of(name)
        if tenant not in self._tenants and len(self._tenants) >= MAX_TENANTS:
            tenant = OTHERS
        else:
            self._tenants.add(tenant)
        used = batch.usage + batch.plan.reflect_usage
        self._tenant_reflections.labels(tenant).inc(batch.plan.reflections)
        self._tenant_tokens.labels(tenant).inc(max(0, used.tokens_in + used.tokens_out))
        self._tenant_cost.labels(tenant).inc(max(0.0, self._cost_of(used)))

    def outcomes(self, statistics: OutcomeStatistics) -> None:
        """A line has new statistics of outcomes."""
        newest = newest_outcomes(statistics)
        if newest is None:
            return
        figures = newest.figures
        for result in RESULTS:
            self._outcomes.labels(statistics.line, result).set(getattr(figures, result))
        if (success := success_of(figures)) is not None:
            for bound in BOUNDS:
                self._success.labels(statistics.line, bound).set(getattr(success, bound))
        self._outcomes_of.add(statistics.line)

    def _forget_outcomes(self, line: str) -> None:
        _remove(self._outcomes, line, *RESULTS)
        _remove(self._success, line, *BOUNDS)

    def canary(self, playbook: str, report: CanaryReport | None) -> None:
        """A playbook's canary has made progress; None: it is over."""
        if report is None:
            self._canaries_of.drop(playbook)
            return
        for arm, figures in zip(ARMS, (report.candidate, report.control), strict=True):
            self._canary_callers.labels(playbook, arm).set(figures.counted)
        for name, value in zip(EVIDENCE, (report.e_acceptance, report.e_worse), strict=True):
            self._canary_evidence.labels(playbook, name).set(value)
        self._canaries_of.add(playbook)

    def _forget_canary(self, playbook: str) -> None:
        _remove(self._canary_callers, playbook, *ARMS)
        _remove(self._canary_evidence, playbook, *EVIDENCE)

    def gate(self, gate: Gate) -> None:
        """A playbook's gate has changed."""
        name = gate.production.playbook
        self._production.labels(name).set(gate.production.version)
        if gate.candidate is not None:
            self._candidate.labels(name).set(gate.candidate.moved_at_ms / 1000)
        else:
            _remove(self._candidate, name)
        self._gates_of.add(name)

    def _forget_gate(self, name: str) -> None:
        _remove(self._production, name)
        _remove(self._candidate, name)

    def decided(self, decision: Decision) -> None:
        """A decision about the version that agents read was made."""
        self._decisions.labels(decision.decided).inc()

    # ---- how it is now

    def open(self, records: Mapping[TopicPartition, int]) -> None:
        """The number of open records has changed, by partition."""
        by_topic: Tally[str] = Tally()
        for source, count in records.items():
            by_topic[source.topic] += count
        for topic, count in by_topic.items():
            self._open.labels(topic).set(count)

    def lag(self, lags: Mapping[str, Lag]) -> None:
        """The group's lag was looked up; ages grow with the clock until the next look-up."""
        for topic, lag in lags.items():
            self._lag_records.labels(self._service, topic).set(lag.records)
            self._oldest_ms[topic] = lag.oldest_ms
            self._lag_seconds.labels(self._service, topic).set_function(self._lag_age(topic))

    def _lag_age(self, topic: str) -> Callable[[], float]:
        return lambda: self._age_s(self._oldest_ms.get(topic))

    def in_flight(self, batches: Sequence[Batch]) -> None:
        """These batches have no version yet."""
        self._in_flight.set(len(batches))
        self._batch_closed_ms = min((batch.plan.closed_at_ms for batch in batches), default=None)

    def looked(self) -> None:
        """Lag and batches have just been looked up."""
        self._looked_at = self._clock.monotonic()

    def conditions(self, conditions: Iterable[Condition]) -> None:
        """The conditions of ``/readyz``."""
        for condition in conditions:
            self._conditions.labels(condition.name).set(condition.good)

    def paused(self, playbooks: Collection[str]) -> None:
        """The playbooks that are held back."""
        self._paused.set(len(playbooks))

    def held(self, counts: Mapping[str, int]) -> None:
        """The number of reflections held back has changed, by cause."""
        for why, count in counts.items():
            self._held.labels(why).set(count)


class HttpMetrics:
    """The gateway's metrics of requests, by route; a route is a template of the API, so every label is bounded."""

    def __init__(self, registry: CollectorRegistry, streams: Callable[[], int]) -> None:
        self._requests = Counter(
            "combee_http_requests_total", "Requests answered.", ("route", "status"), registry=registry
        )
        self._seconds = Histogram(
            "combee_http_request_seconds",
            "Time from a request's head to its answer's head.",
            ("route",),
            buckets=HTTP_SECONDS,
            registry=registry,
        )
        open_now = Gauge("combee_streams_open", "Event streams open now.", registry=registry)
        open_now.set_function(streams)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)
