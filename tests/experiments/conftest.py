"""Fixtures of the experiments' lane: no broker; time is virtual there anyway."""

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def warnings_only() -> Iterator[None]:
    """Keep quiet: thousands of batches are made here, and every one says so."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    yield
    structlog.configure(**before)
