import pytest
from structlog.testing import capture_logs

from combee.adapters.openai.faults import CallFailedError, Refusal, RefusedError, classify, redact
from combee.adapters.openai.patience import Health, Patience, Waiting
from combee.adapters.openai.retry_after import retry_after_s
from combee.ports import PoisonError, PromptTooLongError, TransientError

PATIENCE = Patience(first_wait_s=0.5, max_wait_s=30, permanent_wait_s=20, give_up_after_s=None)


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_these_statuses_heal_by_themselves(status: int) -> None:
    fault = classify(Refusal(status=status, message="busy", retry_after_s=3))
    assert isinstance(fault, CallFailedError)
    assert isinstance(fault, TransientError)
    assert not fault.permanent
    assert fault.retry_after_s == 3


@pytest.mark.parametrize(
    ("status", "code", "message", "remedy"),
    [
        (401, "", "bad key", "OPENAI_API_KEY"),
        (402, "", "Insufficient Balance", "credit"),
        (403, "", "no access", "OPENAI_API_KEY"),
        (404, "", "nothing here", "/v1"),
        (405, "", "Method Not Allowed", "base URL"),
        (429, "insufficient_quota", "You exceeded your current quota", "quota"),
        (400, "billing_hard_limit_reached", "limit", "quota"),
        (400, "", "x/y is not a valid model ID", "model's name"),
        (400, "", "The model `x` does not exist", "model's name"),
    ],
)
def test_these_last_until_somebody_acts_and_name_the_remedy(
    status: int, code: str, message: str, remedy: str
) -> None:
    fault = classify(Refusal(status=status, code=code, message=message))
    assert isinstance(fault, CallFailedError)
    assert fault.permanent
    assert remedy in str(fault).partition(";")[2]


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (400, "context_length_exceeded", "too much"),
        (400, "", "This model's maximum context length is 4096 tokens"),
        (400, "", "the request exceeds the available context size"),
        (400, "", "prompt is too long: 250000 tokens > 200000 maximum"),
        (400, "", "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
        (422, "", "Input validation error: `inputs` must have less than 1024 tokens. Given: 4096"),
        (413, "", "Payload Too Large"),
        (422, "", "input is too long"),
        (429, "rate_limit_exceeded", "Request too large for gpt-4 on tokens per min"),
        (500, "", "please reduce the length of the messages"),
    ],
)
def test_a_prompt_that_is_too_long_is_told_from_other_refusals(status: int, code: str, message: str) -> None:
    assert isinstance(classify(Refusal(status=status, code=code, message=message)), PromptTooLongError)


@pytest.mark.parametrize(
    ("status", "message"), [(400, "bad request"), (422, "bad field"), (403, "your input was flagged")]
)
def test_a_prompt_the_server_refuses_is_poison(status: int, message: str) -> None:
    fault = classify(Refusal(status=status, message=message))
    assert isinstance(fault, RefusedError)
    assert isinstance(fault, PoisonError)
    assert message in str(fault)


@pytest.mark.parametrize(
    "text", ["key is tops3cret", "Incorrect API key: sk-abc***wxyz", "header Bearer abcdefgh is wrong"]
)
def test_nothing_that_looks_like_a_secret_is_shown(text: str) -> None:
    shown = redact(text, "tops3cret")
    assert "***" in shown
    assert not any(secret in shown for secret in ("tops3cret", "sk-abc", "abcdefgh"))


def test_a_placeholder_key_is_not_cut_out_of_the_servers_words() -> None:
    assert redact("none of the messages fits", "none") == "none of the messages fits"


@pytest.mark.parametrize(
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
    waiting = Waiting(PATIENCE)
    assert waiting(CallFailedError("busy", retry_after_s=9)) == 9
    assert waiting(CallFailedError("busy", retry_after_s=0)) == 0.5


def test_without_a_wish_the_back_off_decides_and_permanent_trouble_is_slow() -> None:
    waiting = Waiting(PATIENCE)
    assert waiting(CallFailedError("busy")) is True
    assert waiting(CallFailedError("bad key", retry_after_s=1, permanent=True)) == 20


def test_other_errors_are_not_tried_again() -> None:
    assert Waiting(PATIENCE)(PoisonError("no")) is False


def test_patience_is_counted_from_the_first_failure_and_a_wait_beyond_it_is_not_begun() -> None:
    waiting = Waiting(Patience(first_wait_s=1, max_wait_s=30, permanent_wait_s=20, give_up_after_s=60))
    waiting.failed_at(1000)
    assert waiting(CallFailedError("busy", retry_after_s=59)) == 59
    assert waiting(CallFailedError("busy", retry_after_s=61)) is False
    waiting.failed_at(1059)
    assert waiting(CallFailedError("busy")) is True
    waiting.failed_at(1060)
    assert waiting(CallFailedError("busy")) is False


@pytest.mark.usefixtures("every_level")
def test_trouble_is_said_aloud_once_and_so_is_its_end() -> None:
    health = Health()
    with capture_logs() as logs:
        for _ in range(3):
            health.failed(CallFailedError("bad key; check it", permanent=True))
        assert health.trouble == "bad key; check it"
        health.answered()
        health.answered()
    assert health.trouble is None
    assert [entry["log_level"] for entry in logs] == ["error", "info"]
    assert logs[0]["reason"] == "bad key; check it"
