"""What the gateway counts of requests; docs/reference/http.md explains every line."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60)


class HttpMetrics:
    """Requests by route; a route is a template of the API, so every label is bounded."""

    def __init__(self, registry: CollectorRegistry, streams: Callable[[], int]) -> None:
        self._requests = Counter(
            "combee_http_requests_total", "Requests answered.", ("route", "status"), registry=registry
        )
        self._seconds = Histogram(
            "combee_http_request_seconds",
            "From a request's head to the head of its answer.",
            ("route",),
            buckets=SECONDS,
            registry=registry,
        )
        open_now = Gauge("combee_streams_open", "Event streams at this moment.", registry=registry)
        open_now.set_function(streams)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)
