"""Spans and metrics by OTLP/HTTP: to a receiver that decodes them, and to one that is not there."""

import socket
import time
from collections.abc import Iterator
from contextlib import closing
from http import HTTPStatus
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from combee.adapters.opentelemetry.sending import CLOSE_S, Sending
from combee.adapters.ports import Outgoing
from combee.assembly import compose
from combee.core.text.redact import redacted
from combee.process.settings.group import SettingsError
from combee.process.settings.loading import load_settings
from support.otlp import OtlpReceiver, otlp_receiver
from support.waiting import until

MORE_THAN_ITS_QUEUE = 5_000
SECONDS = 5.0
"""A multiple of what it takes on a machine that is busy."""
STANDARD = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as made:
        yield made


@pytest.fixture
def nowhere() -> str:
    """Return an address where nobody listens."""
    with closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{bound.getsockname()[1]}"


def sending(endpoint: str, service: str = "scan") -> Sending:
    return Sending(endpoint, service=service, instance="7", version="1.2.3", redact=redacted)


def test_the_standard_variable_turns_it_on_and_ours_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().worker.otel_endpoint is None
    monkeypatch.setenv(STANDARD, "http://collector:4318")
    assert load_settings().worker.otel_endpoint == "http://collector:4318"
    monkeypatch.setenv("COMBEE_OTEL_ENDPOINT", "http://other:4318")
    assert load_settings().worker.otel_endpoint == "http://other:4318"
    monkeypatch.setenv("COMBEE_OTEL_ENDPOINT", "collector")
    with pytest.raises(SettingsError, match="OTEL_ENDPOINT"):
        load_settings()


def test_a_file_that_merely_lies_there_does_not_say_where_spans_go(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("combee.toml").write_text('otel_endpoint = "http://elsewhere:4318"\n')
    with pytest.raises(SettingsError, match="otel_endpoint"):
        load_settings()


async def test_a_service_sends_its_spans_and_all_its_metrics_under_its_name(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STANDARD, receiver.address)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    settings = load_settings(slot=3)
    made = compose.sending_of("publish", settings.worker)
    assert made is not None
    telemetry = compose.telemetry_of("publish", settings, sending=made)
    async with telemetry.served():
        with telemetry.tracing.span("write version", {"combee.version": 1}):
            pass
    made.close()
    assert [(service, span.name) for service, span in receiver.spans()] == [
        ("combee-publish", "write version")
    ]
    assert {"combee_build_info", "combee_batch_seconds"} <= receiver.metrics("combee-publish")
    told = {(each["service.instance.id"], each["deployment.environment.name"]) for each in receiver.resources}
    assert told == {("3", "test")}


async def test_a_receiver_that_is_away_stops_nothing_and_is_told_of_once(
    nowhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    made = sending(nowhere)
    with capture_logs() as logs:
        began = time.thread_time()
        for _ in range(MORE_THAN_ITS_QUEUE):
            with made.tracing.span("any"):
                made.tracing.stamped(Outgoing(topic="traces", value=b""))
        assert time.thread_time() - began < SECONDS
        made.flush()
        began = time.monotonic()
        made.close()
        assert time.monotonic() - began < CLOSE_S + SECONDS
    told = [line for line in logs if line["event"] == "otlp_not_sent"]
    assert [(line["what"], line["endpoint"]) for line in told] == [("spans", nowhere)]


async def test_a_receiver_that_refuses_is_told_of_once_and_so_is_its_return(receiver: OtlpReceiver) -> None:
    made = sending(receiver.address)
    receiver.status = HTTPStatus.BAD_REQUEST
    with capture_logs() as logs:
        for _ in range(3):
            with made.tracing.span("lost"):
                pass
            made.flush()
        receiver.status = HTTPStatus.OK
        for _ in range(3):
            with made.tracing.span("taken"):
                pass
            made.flush()
        made.close()
    events = [line["event"] for line in logs if line["event"].startswith("otlp_")]
    assert events == ["otlp_not_sent", "otlp_sent_again"]


async def test_what_is_left_is_sent_when_the_service_stops(receiver: OtlpReceiver) -> None:
    made = sending(receiver.address)
    with made.tracing.span("the last"):
        pass
    made.close()
    await until(lambda: bool(receiver.spans("the last")))
