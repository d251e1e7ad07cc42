"""Which error a server's refusal becomes, and what of it is shown."""

import pytest

from combee.adapters.openai.fates import Refusal, classify, redact
from combee.asking.errors import CallFailedError, RefusedError
from combee.ports import PoisonError, PromptTooLongError, TransientError
from support.rows import each_row


@each_row("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_these_statuses_heal_by_themselves(status: int) -> None:
    fault = classify(Refusal(status=status, message="busy", retry_after_s=3))
    assert isinstance(fault, CallFailedError)
    assert isinstance(fault, TransientError)
    assert not fault.permanent
    assert fault.retry_after_s == 3


@each_row(
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


@each_row(
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
