"""A receiver of OTLP/HTTP: it decodes what comes with the official protobufs, and keeps it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class OtlpReceiver:
    """What came so far: spans and names of metrics, each with the service that sent it."""

    def __init__(self) -> None:
        self.address = ""
        self.status = HTTPStatus.OK
        self.requests = 0
        self.resources: list[dict[str, str]] = []
        self._spans: list[tuple[str, Span]] = []
        self._metrics: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def spans(self, name: str = "") -> list[tuple[str, Span]]:
        """Return the spans of a name, or all, with their services."""
        with self._lock:
            return [(service, span) for service, span in self._spans if name in {"", span.name}]

    def metrics(self, service: str) -> set[str]:
        """Return the names of a service's metrics."""
        with self._lock:
            return {name for sender, name in self._metrics if sender == service}

    def take(self, path: str, body: bytes) -> None:
        """Keep what a request brings."""
        with self._lock:
            self.requests += 1
            if path == "/v1/traces":
                for sent in ExportTraceServiceRequest.FromString(body).resource_spans:
                    service = self._service(sent)
                    self._spans += [(service, span) for scope in sent.scope_spans for span in scope.spans]
            elif path == "/v1/metrics":
                for figures in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    service = self._service(figures)
                    self._metrics |= {(service, m.name) for s in figures.scope_metrics for m in s.metrics}

    def _service(self, sent: Any) -> str:
        resource = {pair.key: pair.value.string_value for pair in sent.resource.attributes}
        self.resources.append(resource)
        return str(resource["service.name"])


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """Serve on loopback; yields what is received."""
    receiver = OtlpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.take(self.path, body)
            self.send_response(receiver.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    receiver.address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
