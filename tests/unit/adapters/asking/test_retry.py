"""How long a failed call waits before it is tried again, and when the trouble is logged."""

import pytest
from structlog.testing import capture_logs

from combee.adapters.asking.errors import CallFailedError
from combee.adapters.asking.retry import RetryPolicy, RetryWaits, retry_after_s
from combee.adapters.openai.caller import ModelHealth
from combee.adapters.ports import PoisonError
from support.rows import each_row

POLICY = RetryPolicy(first_wait_s=0.5, max_wait_s=30, permanent_wait_s=20, give_up_after_s=None)


@each_row(
    ("headers", "expected_s"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "86400"}, 120),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:30 GMT", "date": "Thu, 01 Jan 2026 00:00:10 GMT"}, 20),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:30 GMT"}, None),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_time(
    headers: dict[str, str], expected_s: float | None
) -> None:
    assert retry_after_s(headers) == expected_s


def test_retry_after_is_waited_for_and_never_becomes_a_busy_loop() -> None:
    waiting = RetryWaits(POLICY)
    assert waiting(CallFailedError("busy", retry_after_s=9)) == 9
    assert waiting(CallFailedError("busy", retry_after_s=0)) == 0.5


def test_without_a_wish_the_back_off_decides_and_permanent_trouble_is_slow() -> None:
    waiting = RetryWaits(POLICY)
    assert waiting(CallFailedError("busy")) is True
    assert waiting(CallFailedError("bad key", retry_after_s=1, permanent=True)) == 20


def test_other_errors_are_not_tried_again() -> None:
    assert RetryWaits(POLICY)(PoisonError("no")) is False


def test_the_time_to_give_up_is_counted_from_the_first_failure_and_a_wait_beyond_it_is_not_begun() -> None:
    waiting = RetryWaits(RetryPolicy(first_wait_s=1, max_wait_s=30, permanent_wait_s=20, give_up_after_s=60))
    waiting.failed_at(1000)
    assert waiting(CallFailedError("busy", retry_after_s=59)) == 59
    assert waiting(CallFailedError("busy", retry_after_s=61)) is False
    waiting.failed_at(1059)
    assert waiting(CallFailedError("busy")) is True
    waiting.failed_at(1060)
    assert waiting(CallFailedError("busy")) is False


@pytest.mark.usefixtures("every_level")
def test_trouble_is_said_aloud_once_and_so_is_its_end() -> None:
    health = ModelHealth()
    with capture_logs() as logs:
        for _ in range(3):
            health.failed(CallFailedError("bad key; check it", permanent=True))
        assert health.trouble == "bad key; check it"
        health.answered()
        health.answered()
    assert health.trouble is None
    assert [entry["log_level"] for entry in logs] == ["error", "info"]
    assert logs[0]["reason"] == "bad key; check it"
