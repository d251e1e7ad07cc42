"""Errors of model calls: a server's refusal becomes one of our errors, by its status and code."""

import re
from dataclasses import dataclass

from combee.adapters.openai.names import NO_KEY
from combee.ports import CombeeError, PoisonError, PromptTooLongError, TransientError

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
_SECRETS = re.compile(r"\b(sk|pk|rk|key)-[\w*.-]{6,}|(?<=bearer )\S+", re.IGNORECASE)

_REMEDIES = {
    401: "check the API key (OPENAI_API_KEY)",
    402: "add credit with the provider",
    403: "this key may not use this model: check OPENAI_API_KEY and the model's name",
    404: "check the model's name and the base URL, which usually ends in /v1; "
    "a server whose own names begin with openai/ needs that prefix twice",
    TOO_MANY: "the quota is used up: raise the limit or add credit with the provider",
}


class CallFailedError(TransientError):
    """A call without a reply, to be tried again: soon, or slowly while the cause is ``permanent``."""

    def __init__(
        self,
        text: str,
        *,
        retry_after_s: float | None = None,
        permanent: bool = False,
        unreachable: bool = False,
    ) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s
        self.permanent = permanent
        self.unreachable = unreachable
        """Nobody listens at the address."""


class RefusedError(PoisonError):
    """The server refuses this request; another shape of it may do."""

    def __init__(self, text: str, *, param: str = "") -> None:
        super().__init__(text)
        self.about = f"{param} {text}".lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A server's answer that is not a reply."""

    status: int
    message: str
    code: str = ""
    param: str = ""
    retry_after_s: float | None = None


def classify(refusal: Refusal) -> CombeeError:
    """Return the error whose fate the refusal shares."""
    status, about = refusal.status, f"{refusal.code} {refusal.message}".lower()
    shown = " ".join(part for part in (str(status), refusal.code, refusal.message) if part)
    text = f"the model's server answered {shown}"
    if _is_too_long(status, about):
        return PromptTooLongError(text)
    if _ACCOUNT.search(refusal.code.lower()):
        return _permanent(text, TOO_MANY if _QUOTA.search(refusal.code.lower()) else status)
    if status in TRANSIENT or status >= SERVER:
        return CallFailedError(text, retry_after_s=refusal.retry_after_s)
    prompt_is_at_fault = status in ABOUT_THE_PROMPT and not _NO_MODEL.search(about)
    if prompt_is_at_fault or (status == 403 and _FLAGGED.search(about)):  # noqa: PLR2004 - an HTTP status
        return RefusedError(text, param=refusal.param)
    return _permanent(text, status)


def redact(text: str, secret: str) -> str:
    """Return ``text`` without the secret and without whatever looks like one."""
    # A placeholder such as "none" is no secret, and an ordinary word besides.
    known = text.replace(secret, "***") if len(secret) > len(NO_KEY) else text
    return _SECRETS.sub("***", known)


def _is_too_long(status: int, about: str) -> bool:
    if status == TOO_MANY:  # one request above the limit per minute: waiting never helps
        return "request too large" in about
    return status == TOO_LARGE or (status in ABOUT_THE_PROMPT | {SERVER} and bool(_TOO_LONG.search(about)))


def _permanent(text: str, status: int) -> CallFailedError:
    remedy = _REMEDIES.get(status, "check the model's name and the base URL")
    return CallFailedError(f"{text}; {remedy}", permanent=True)
