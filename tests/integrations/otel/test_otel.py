"""What OpenTelemetry's SDK exports becomes a version, and what services do is exported: on real Kafka."""

import json
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

EXAMPLE, LESSON = "otel_agent.py", "otel_lesson.py"
MOST_LINES = 30


def test_the_example_teaches_the_playbook(
    run_example: Callable[[str], str],
    eventually: Callable[[Callable[[], Any]], Any],
    learned: Any,
) -> None:
    run_example(EXAMPLE)
    address = f"{learned.http}/v1/playbooks/support%2Frefunds/versions"

    def batches() -> list[dict[str, Any]]:
        with urllib.request.urlopen(address) as answer:  # noqa: S310 - http, on loopback
            versions = json.loads(answer.read())["versions"]
        return [version for version in versions if version["origin"] == "batch"]

    version = eventually(batches)[-1]
    assert version["reflections"] >= 1
    assert version["sources"] == {"unproven": version["reflections"]}  # it named itself, and nobody proved it


def test_the_way_of_a_lesson_is_one_trace_from_the_agent_to_the_version(
    run_example: Callable[[str], str], eventually: Callable[[Callable[[], Any]], Any], receiver: Any
) -> None:
    trace_id = run_example(LESSON).split()[-1]

    def of_the_trace(name: str) -> list[Any]:
        return [span for _, span in receiver.spans(name) if span.trace_id.hex() == trace_id]

    (version,) = eventually(lambda: of_the_trace("write version") or links(receiver, trace_id))
    assert version
    # Each process sends its spans when it likes: that of the last one may arrive first.
    assert eventually(lambda: of_the_trace("POST")), "the gateway's request"
    assert eventually(lambda: of_the_trace("wait batch")), "how long the window was open"


def links(receiver: Any, trace_id: str) -> list[Any]:
    """Return the versions of a batch that took this lesson beside those of other traces."""
    batches = [
        span.trace_id
        for _, span in receiver.spans("batch")
        if any(link.trace_id.hex() == trace_id for link in span.links)
    ]
    return [span for _, span in receiver.spans("write version") if span.trace_id in batches]


def test_every_service_and_the_gateway_send_their_metrics(
    eventually: Callable[[Callable[[], Any]], Any], learned: Any, receiver: Any
) -> None:
    assert learned
    for service in ("control", "gateway", "publish", "reflect", "scan", "shuffle"):
        eventually(partial(sends, receiver, service, "combee_build_info"))
    eventually(partial(sends, receiver, "gateway", "combee_http_requests_total"))


def sends(receiver: Any, service: str, metric: str) -> bool:
    return metric in receiver.metrics(f"combee-{service}")


@pytest.mark.parametrize("example", [EXAMPLE, LESSON])
def test_an_example_is_short(example: str) -> None:
    path = Path(__file__).parents[3] / "examples" / example
    assert len(path.read_text("utf-8").splitlines()) <= MOST_LINES
