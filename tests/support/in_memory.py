"""Fixtures of the lanes in which services run in the test's own process, on the in-memory log.

They import what they need when a test needs it: a run's first process reads this, too, before it starts those that
run the tests.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def hearing(level: int) -> Iterator[None]:
    """Filter logs below a level for as long as a test runs: other lanes may run in the same process."""
    import structlog  # noqa: PLC0415 - see above

    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(level))
    yield
    structlog.configure(**before)


@pytest.fixture(autouse=True)
def warnings_only() -> Iterator[None]:
    """Keep quiet: thousands of batches are made here, and every one says so."""
    with hearing(logging.WARNING):
        yield


@pytest.fixture
def every_level(warnings_only: None) -> Iterator[None]:  # noqa: ARG001 - what this one overrides
    """Hear information, too."""
    with hearing(logging.DEBUG):
        yield


@pytest.fixture
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let event loops pass over the time in which nothing happens."""
    from combee_experiments.running.virtual_time import VirtualTimeLoop  # noqa: PLC0415 - see above

    monkeypatch.setattr(asyncio.DefaultEventLoopPolicy, "_loop_factory", VirtualTimeLoop)


@pytest.fixture
def quick_polls(monkeypatch: pytest.MonkeyPatch, virtual_time: None) -> None:  # noqa: ARG001 - no wait, either
    """Let an idle loop commit at once: it does so once per poll, and tests wait for that."""
    from combee.process.worker import loop  # noqa: PLC0415 - see above
    from combee.publish import publisher  # noqa: PLC0415 - see above

    monkeypatch.setattr(loop, "POLL_S", 0.005)
    monkeypatch.setattr(publisher, "POLL_S", 0.005)
