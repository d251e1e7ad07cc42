"""Which error a server's refusal becomes, and what of it is shown."""

from unittest.mock import MagicMock

import aiohttp
import httpx2
import openai
from openai import _base_client, _exceptions, _legacy_response, _response
from openai._extras import _common
from openai.lib import azure

from combee.adapters.asking.errors import CallFailedError, CallRefusedError
from combee.adapters.openai.fates import Refusal, classify, fate, redact
from combee.adapters.ports import PoisonError, PromptTooLongError, TransientError
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


@each_row(("status", "message"), [(400, "bad request"), (422, "bad field"), (403, "your input was flagged")])
def test_a_prompt_the_server_refuses_is_poison(status: int, message: str) -> None:
    fault = classify(Refusal(status=status, message=message))
    assert isinstance(fault, CallRefusedError)
    assert isinstance(fault, PoisonError)
    assert message in str(fault)


@each_row(
    "text",
    [
        "key is tops3cret",
        "Incorrect API key: sk-abc***wxyz",
        "header Bearer abcdefgh is wrong",
        "token eyJhbGciOiJ.eyJhdWQiOiJ.c2ln is wrong",
    ],
)
def test_nothing_that_looks_like_a_secret_is_shown(text: str) -> None:
    shown = redact(text, "tops3cret")
    assert "***" in shown
    assert not any(secret in shown for secret in ("tops3cret", "sk-abc", "abcdefgh", "eyJ", "c2ln"))


def test_a_placeholder_key_is_not_cut_out_of_the_servers_words() -> None:
    assert redact("none of the messages fits", "none") == "none of the messages fits"


# ---- of what OpenAI's client raises

REQUEST = httpx2.Request("POST", "http://model.example/v1/chat/completions")
RETRIED, SLOWLY, DEAD_LETTER = "retried", "retried slowly", "dead letter"
FATES = {
    "APIConnectionError": RETRIED,
    "APIError": RETRIED,
    "APIResponseValidationError": RETRIED,
    "APIStatusError": RETRIED,
    "APITimeoutError": RETRIED,
    "AuthenticationError": SLOWLY,
    "BadRequestError": DEAD_LETTER,
    "ConflictError": RETRIED,
    "ContentFilterFinishReasonError": DEAD_LETTER,
    "InternalServerError": RETRIED,
    "InvalidWebhookSignatureError": SLOWLY,
    "LengthFinishReasonError": DEAD_LETTER,
    "MissingDependencyError": SLOWLY,
    "MissingStreamClassError": SLOWLY,
    "MutuallyExclusiveAuthError": SLOWLY,
    "NotFoundError": SLOWLY,
    "OAuthError": SLOWLY,
    "OpenAIError": SLOWLY,
    "PermissionDeniedError": SLOWLY,
    "RateLimitError": RETRIED,
    "StreamAlreadyConsumed": SLOWLY,
    "SubjectTokenProviderError": SLOWLY,
    "UnprocessableEntityError": DEAD_LETTER,
    "WebSocketConnectionClosedError": SLOWLY,
    "WebSocketQueueFullError": SLOWLY,
}
"""Of each exception by its name. Where a status decides, it is the class's own; of APIStatusError it is 500."""


def exceptions_of_the_client() -> set[type[Exception]]:
    """Return every class of exceptions that the package shows, or has where a call may raise it."""
    shown = [getattr(openai, name) for name in openai.__all__ if name.endswith(("Error", "Exception"))]
    passed = (_exceptions, _base_client, _response, _legacy_response, _common, azure)
    own = [value for module in passed for value in tuple(vars(module).values())]
    return {
        kind
        for kind in (*shown, *own)
        if isinstance(kind, type) and issubclass(kind, Exception) and kind.__module__.startswith("openai")
    }


def raised(kind: type[Exception]) -> Exception:
    """Return such an exception as the client would raise it, without what only its own constructor asks for."""
    if issubclass(kind, openai.APIStatusError):
        response = httpx2.Response(getattr(kind, "status_code", 500), request=REQUEST)
        return kind(response=response, body={"message": "no"}, **_message(kind))
    if issubclass(kind, openai.APITimeoutError):
        return kind(REQUEST)
    if issubclass(kind, openai.APIConnectionError):
        return kind(request=REQUEST)
    error = kind.__new__(kind)
    Exception.__init__(error, "no")
    return error


def _message(kind: type[openai.APIStatusError]) -> dict[str, str]:
    return {} if issubclass(kind, openai.OAuthError) else {"message": "no"}


def test_every_exception_of_the_client_meets_its_fate_and_none_is_unknown() -> None:
    met = {}
    for kind in exceptions_of_the_client():
        error = fate(raised(kind), host="model.example", shown=str)
        slowly = isinstance(error, CallFailedError) and error.permanent
        met[kind.__name__] = (
            DEAD_LETTER if isinstance(error, CallRefusedError) else SLOWLY if slowly else RETRIED
        )
    assert met == FATES


@each_row(
    ("cause", "unreachable"),
    [
        (aiohttp.ClientConnectorError(MagicMock(), OSError(111, "refused")), True),
        (aiohttp.ConnectionTimeoutError(), True),
        (aiohttp.ServerDisconnectedError(), False),
    ],
)
def test_a_refused_port_is_told_from_a_time_out_though_the_client_calls_both_so(
    cause: Exception,
    unreachable: bool,  # noqa: FBT001 - a table's column
) -> None:
    error = openai.APITimeoutError(REQUEST)
    error.__cause__ = httpx2.ConnectTimeout("so it is called")
    error.__cause__.__cause__ = cause
    failed = fate(error, host="model.example", shown=str)
    assert isinstance(failed, CallFailedError)
    assert failed.unreachable is unreachable
    assert "timed out" not in str(failed)


def test_an_error_of_the_libraries_under_the_client_is_tried_again() -> None:
    failed = fate(aiohttp.ClientPayloadError("odd"), host="model.example", shown=str)
    assert isinstance(failed, CallFailedError)
    assert not failed.permanent
