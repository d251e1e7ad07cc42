"""The SDK where nothing listens: an agent notices nothing, and is told once what is wrong."""

import gc
import time

import pytest

from combee.adapters.embedded_kafka.ports import LOOPBACK, free_ports
from combee.sdk import Client

NAME = "support/refunds"


@pytest.fixture
def nobody() -> str:
    (ports,) = free_ports(1)
    return f"{LOOPBACK}:{ports.broker}"


@pytest.mark.parametrize("scheme", ["", "http://"])
def test_without_a_deployment_an_agent_goes_on_with_its_fallback(
    scheme: str, nobody: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(scheme + nobody)
    assert client.playbook(NAME, fallback="f", timeout_s=0.2).render() == "f"
    began = time.monotonic()
    for number in range(100):
        client.publish(playbook=NAME, key_insight=f"lesson {number}")
        client.playbook(NAME, fallback="f")
    assert time.monotonic() - began < 30
    counts = client.close(timeout_s=0.5)
    assert (counts.waiting, counts.dropped) == (100, 0)
    assert time.monotonic() - began < 60
    assert caplog.text.count("no answer for now") == 1
    assert {record.name for record in caplog.records} == {"combee"}  # no library reports each attempt
    del client
    gc.collect()  # what was left open would warn here, and a warning is an error
