"""Converts Prometheus metrics to OTLP: the metrics of /metrics are sent under the same names.

OpenTelemetry's SDK for Python cannot read another library's registry, and its instruments cannot take a histogram
that is already counted.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from combee_schemas.trace_context import SCOPE

CUMULATIVE = AggregationTemporality.CUMULATIVE
LE = "le"


class Sample(Protocol):
    """One line of /metrics."""

    @property
    def name(self) -> str:
        """The name of its metric, with a suffix such as ``_bucket``."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""

    @property
    def value(self) -> float:
        """Its value."""


class Family(Protocol):
    """A metric of Prometheus with its samples."""

    @property
    def name(self) -> str:
        """Its name; a counter's name has no suffix ``_total`` here."""

    @property
    def documentation(self) -> str:
        """What it counts."""

    @property
    def type(self) -> str:
        """Counter, gauge, histogram, info."""

    @property
    def samples(self) -> Sequence[Sample]:
        """Its lines in /metrics."""


Collect = Callable[[], Iterable[Family]]


@dataclass(frozen=True, slots=True)
class Period:
    """Start and end of counts (ns)."""

    start: int
    now: int


def metrics_data(families: Iterable[Family], resource: Resource, period: Period) -> MetricsData:
    """Return the exporter's form of the metrics; of two families with one name the later wins."""
    by_name = {family.name: family for family in families}
    metrics = [metric for family in by_name.values() for metric in _metrics(family, period)]
    scope = ScopeMetrics(scope=InstrumentationScope(SCOPE), metrics=metrics, schema_url="")
    return MetricsData([ResourceMetrics(resource=resource, scope_metrics=[scope], schema_url="")])


def _metrics(family: Family, period: Period) -> Iterator[Metric]:
    samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
    if not samples:
        return
    if family.type == "histogram":
        points = [_histogram(labels, group, period) for labels, group in _series(samples)]
        yield Metric(family.name, family.documentation, "", Histogram(points, CUMULATIVE))
        return
    numbers = [NumberDataPoint(dict(s.labels), period.start, period.now, s.value) for s in samples]
    counted = family.type == "counter"
    data = Sum(numbers, CUMULATIVE, is_monotonic=True) if counted else Gauge(numbers)
    yield Metric(samples[0].name, family.documentation, "", data)


def _series(samples: Iterable[Sample]) -> Iterable[tuple[Mapping[str, str], list[Sample]]]:
    """Return the samples of a histogram, grouped by their labels; the label ``le`` does not count."""
    series: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in samples:
        own = tuple(sorted((name, value) for name, value in sample.labels.items() if name != LE))
        series.setdefault(own, []).append(sample)
    return [(dict(own), group) for own, group in series.items()]


def _histogram(labels: Mapping[str, str], group: Iterable[Sample], period: Period) -> HistogramDataPoint:
    """Return one point. Each bucket of Prometheus also counts the buckets below it, those of OTLP do not."""
    counts: dict[float, float] = {}
    total = 0.0
    for sample in group:
        if LE in sample.labels:
            counts[float(sample.labels[LE])] = sample.value
        elif sample.name.endswith("_sum"):
            total = sample.value
    bounds = sorted(counts)
    cumulative = [0.0, *(counts[bound] for bound in bounds)]
    return HistogramDataPoint(
        attributes=dict(labels),
        start_time_unix_nano=period.start,
        time_unix_nano=period.now,
        count=int(cumulative[-1]),
        sum=total,
        bucket_counts=[int(upper - lower) for lower, upper in pairwise(cumulative)],
        explicit_bounds=[bound for bound in bounds if math.isfinite(bound)],
        min=None,  # type: ignore[arg-type]  # OTLP knows it as optional; Prometheus keeps none
        max=None,  # type: ignore[arg-type]  # the same
    )
