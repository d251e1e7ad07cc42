"""Fixtures of the unit lane."""

import pytest

from combee.runtime import loop


@pytest.fixture
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an idle loop commit at once: it does so once per poll, and tests wait for that."""
    monkeypatch.setattr(loop, "POLL_S", 0.01)
