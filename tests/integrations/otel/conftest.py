"""The deployment sends its spans and metrics to a receiver in the tests' own process."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

RECEIVER = Path(__file__).parents[2] / "support" / "otlp.py"


@pytest.fixture(scope="session")
def receiver() -> Iterator[Any]:
    """Return what receives them: the tests of the checkout have it, too."""
    spec = importlib.util.spec_from_file_location("otlp", RECEIVER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.otlp_receiver() as made:
        yield made


@pytest.fixture(scope="session")
def deployment_settings(receiver: Any) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.address, "OTEL_METRIC_EXPORT_INTERVAL": "1000"}
