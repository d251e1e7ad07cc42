from collections.abc import Sequence

from opentelemetry.sdk.metrics.export import Gauge, Histogram, Metric, Sum
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, Counter
from prometheus_client import Gauge as PrometheusGauge
from prometheus_client import Histogram as PrometheusHistogram

from combee.adapters.opentelemetry.metrics import Period, metrics_data
from combee.process.telemetry.metrics import Family, Metrics, new_registry
from support.clock import ManualClock

PERIOD = Period(1, 2)


def sent(families: Sequence[Family]) -> dict[str, Metric]:
    (resource,) = metrics_data(families, Resource({}), PERIOD).resource_metrics
    (scope,) = resource.scope_metrics
    assert len({metric.name for metric in scope.metrics}) == len(scope.metrics)
    return {metric.name: metric for metric in scope.metrics}


def collected(registry: CollectorRegistry) -> dict[str, Metric]:
    return sent(list(registry.collect()))


def test_a_counter_is_a_monotonic_sum_under_the_name_that_metrics_shows() -> None:
    registry = CollectorRegistry()
    Counter("combee_records_written_total", "Records.", ("topic",), registry=registry).labels("traces").inc(3)
    data = collected(registry)["combee_records_written_total"].data
    assert isinstance(data, Sum)
    assert data.is_monotonic
    (point,) = data.data_points
    assert (point.value, point.attributes, point.start_time_unix_nano, point.time_unix_nano) == (
        *(3, {"topic": "traces"}),
        *(1, 2),
    )


def test_a_gauge_is_a_gauge() -> None:
    registry = CollectorRegistry()
    PrometheusGauge("combee_lag_seconds", "Age.", registry=registry).set(1.5)
    metric = collected(registry)["combee_lag_seconds"]
    assert isinstance(metric.data, Gauge)
    assert ([point.value for point in metric.data.data_points], metric.description) == ([1.5], "Age.")


def test_the_buckets_of_a_histogram_count_only_what_is_in_them() -> None:
    registry = CollectorRegistry()
    seconds = PrometheusHistogram("s", "Seconds.", ("outcome",), buckets=(1, 5), registry=registry)
    for value in (0.5, 0.7, 3, 100):
        seconds.labels("answered").observe(value)
    seconds.labels("failed").observe(2)
    data = collected(registry)["s"].data
    assert isinstance(data, Histogram)
    answered, failed = data.data_points
    assert (answered.attributes, answered.count, answered.sum) == ({"outcome": "answered"}, 4, 104.2)
    assert (answered.explicit_bounds, answered.bucket_counts) == ([1.0, 5.0], [2, 1, 1])
    assert (failed.attributes, failed.bucket_counts) == ({"outcome": "failed"}, [0, 1, 0])


def test_of_two_families_of_one_name_the_later_is_sent() -> None:
    registries = CollectorRegistry(), CollectorRegistry()
    for value, registry in enumerate(registries):
        PrometheusGauge("up", "Up.", registry=registry).set(value)
    data = sent([family for registry in registries for family in registry.collect()])["up"].data
    assert isinstance(data, Gauge)
    assert [point.value for point in data.data_points] == [1.0]


def test_all_that_a_service_counts_is_sent() -> None:
    metrics = Metrics(new_registry(), ManualClock(), service="scan")
    metrics.written("updates")
    _, text = metrics.text()
    shown = {line.split(b"{")[0].split()[0].decode() for line in text.splitlines() if line[:1] != b"#"}
    names = {name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for name in shown}
    assert {name for name in names if not name.endswith("_created")} == sent(list(metrics.families())).keys()
