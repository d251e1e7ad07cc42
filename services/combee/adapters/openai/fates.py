"""Translates errors of OpenAI's client to Combee's; the status and code of a refusal decide which error it is."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import aiohttp
from openai import (
    APIError,
    APIStatusError,
    ContentFilterFinishReasonError,
    LengthFinishReasonError,
)

from combee.adapters.asking.errors import CallFailedError, CallRefusedError
from combee.adapters.asking.retry import retry_after_s
from combee.adapters.openai.names import NO_KEY
from combee.adapters.ports import CombeeError, PromptTooLongError

SHOWN_CHARS = 300
TOO_LARGE, TOO_MANY = 413, 429
TRANSIENT = frozenset({408, 409, 425, TOO_MANY})
ABOUT_THE_PROMPT = frozenset({400, TOO_LARGE, 422})
SERVER = 500

_ACCOUNT = re.compile(r"insufficient_quota|billing|account_deactivated|invalid_api_key|model_not_found")
_QUOTA = re.compile(r"quota|billing")
_NO_MODEL = re.compile(
    r"(no such|unknown|invalid|not a valid) model|model\b.{0,80}(not found|does not exist|not a valid)"
)
_TOO_LONG = re.compile(
    r"context.?(length|window|size)|string_above_max_length|(prompt|input) is too long"
    r"|too many (input |prompt )?tokens|reduce (the|your) (length|prompt|input|message)"
    r"|token count\b.{0,40}exceeds|must have less than \d+ tokens"
)
_FLAGGED = re.compile(r"content.?(filter|policy|management)|moderation|flagged")
_SECRETS = re.compile(
    r"\b(sk|pk|rk|key)-[\w*.-]{6,}|(?<=bearer )\S+"
    # A token (JWT); the atomic group keeps the search linear, even in a word that repeats eyJ.
    r"|(?<![\w-])(?>[\w-]*?eyJ)[\w-]{8,}\.[\w-]{8,}\.[\w-]*",
    re.IGNORECASE,
)

_REMEDIES = {
    401: "check the API key (OPENAI_API_KEY, on Azure AZURE_OPENAI_API_KEY or AZURE_OPENAI_AD_TOKEN)",
    402: "add credit with the provider",
    403: "this key may not use this model: check OPENAI_API_KEY and the model's name",
    404: "check the model's name (on Azure the deployment's) and the base URL, which usually ends in /v1; "
    "for a server whose own model names begin with openai/ write the prefix twice",
    TOO_MANY: "the quota is used up: raise the limit or add credit with the provider",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A server's answer that is not a reply."""

    status: int
    message: str
    code: str = ""
    param: str = ""
    retry_after_s: float | None = None


def fate(error: Exception, *, host: str, shown: Callable[[str], str]) -> CombeeError:
    """Return Combee's error for an error of OpenAI's client; ``shown`` removes secrets from a text."""
    if isinstance(error, APIStatusError):
        return classify(_refusal(error, shown))
    if isinstance(error, ContentFilterFinishReasonError | LengthFinishReasonError):
        return CallRefusedError(shown(str(error)))
    causes = tuple(_causes(error))
    root = causes[-1]
    said = shown(f"{type(root).__name__} {root}")
    if isinstance(error, APIError | aiohttp.ClientError | OSError):
        unreachable = any(
            isinstance(cause, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
            for cause in causes
        )
        return CallFailedError(f"no answer from {host}: {said}", unreachable=unreachable)
    return CallFailedError(f"OpenAI's client cannot ask {host}: {said}", permanent=True)


def _refusal(error: APIStatusError, shown: Callable[[str], str]) -> Refusal:
    body = error.body if isinstance(error.body, dict) else {}
    response = error.response
    message = body.get("message") or body.get("detail") or error.body or response.reason_phrase
    return Refusal(
        status=error.status_code,
        message=shown(str(message)),
        code=shown(str(body.get("code") or body.get("type") or "")),
        param=str(body.get("param") or ""),
        retry_after_s=retry_after_s(response.headers),
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, its cause, and so on to the first cause."""
    while error is not None:
        yield error
        error = error.__cause__


def classify(refusal: Refusal) -> CombeeError:
    """Return Combee's error for a refusal."""
    status, about = refusal.status, f"{refusal.code} {refusal.message}".lower()
    shown = " ".join(part for part in (str(status), refusal.code, refusal.message) if part)
    text = f"the model's server answered {shown}"
    if _is_too_long(status, about):
        return PromptTooLongError(text)
    code = refusal.code.lower()
    if _ACCOUNT.search(code):
        return _permanent(text, TOO_MANY if _QUOTA.search(code) else status)
    if status in TRANSIENT or status >= SERVER:
        return CallFailedError(text, retry_after_s=refusal.retry_after_s)
    prompt_is_at_fault = status in ABOUT_THE_PROMPT and not _NO_MODEL.search(about)
    if prompt_is_at_fault or (status == 403 and _FLAGGED.search(about)):  # noqa: PLR2004 - an HTTP status
        return CallRefusedError(text, param=refusal.param)
    return _permanent(text, status)


def redact(text: str, *secrets: str) -> str:
    """Return ``text`` without the secrets and without anything that looks like a secret."""
    for secret in secrets:
        # A placeholder such as "none" is an ordinary word, not a secret.
        if len(secret) > len(NO_KEY):
            text = text.replace(secret, "***")
    return _SECRETS.sub("***", text)


def _is_too_long(status: int, about: str) -> bool:
    if status == TOO_MANY:  # The request alone exceeds the limit per minute, so waiting does not help.
        return "request too large" in about
    return status == TOO_LARGE or (status in ABOUT_THE_PROMPT | {SERVER} and bool(_TOO_LONG.search(about)))


def _permanent(text: str, status: int) -> CallFailedError:
    remedy = _REMEDIES.get(status, "check the model's name and the base URL")
    return CallFailedError(f"{text}; {remedy}", permanent=True)
