"""Requests in the form that a server accepts, and defensive reading of its answers."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeGuard

from combee.adapters.asking.errors import CallFailedError, CallRefusedError
from combee.adapters.asking.replies import Answer
from combee.adapters.openai.fates import Refusal, classify
from combee_schemas.base import Usage
from combee_schemas.model import CHARS_PER_TOKEN, Prompt

Message = Mapping[str, str]

MAX_COUNT = 1 << 31
"""Maximum token count believed: more than any call has, and sums still fit a record's 64 bits."""
BAD_REQUEST, BAD_GATEWAY = 400, 502
_FORMAT = re.compile(r"response_format|json|schema|grammar|structured")
_OPTIONS = ("temperature", "seed", "max_tokens", "max_completion_tokens", "prompt_cache_key")
_UNKNOWN_FIELD = re.compile(
    r"(extra|additional|unknown|unrecogni[sz]ed|unexpected)[ _](inputs?|fields?|propert|param|argument|key|forbidden)"
    r"|not permitted"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """Options of every call; None leaves a value to the server."""

    model: str
    max_output_tokens: int | None
    temperature: float | None
    seed: int | None


def request(options: RequestOptions, prompt: Prompt, dropped: frozenset[str]) -> dict[str, Any]:
    """Return the parameters of a call, its messages aside."""
    newer_name = "max_tokens" in dropped
    wanted = {
        "temperature": options.temperature,
        "seed": options.seed,
        "max_completion_tokens" if newer_name else "max_tokens": options.max_output_tokens,
        "response_format": _response_format(prompt, dropped),
        "prompt_cache_key": prompt.cache_key or None,
    }
    kept = {name: value for name, value in wanted.items() if value is not None and name not in dropped}
    return {"model": options.model} | kept


def option_to_drop(sent: Mapping[str, Any], refused: CallRefusedError) -> str | None:
    """Return the one option to drop before asking again, or None if the prompt itself is refused."""
    for name in _OPTIONS:
        if name in sent and re.search(rf"\b{name}\b", refused.about):
            return name
    if "response_format" in sent and _FORMAT.search(refused.about):
        return str(sent["response_format"]["type"])
    if "prompt_cache_key" in sent and _UNKNOWN_FIELD.search(refused.about):
        return "prompt_cache_key"  # the field that the fewest servers know
    return None


def _response_format(prompt: Prompt, dropped: frozenset[str]) -> dict[str, Any] | None:
    if not prompt.reply_schema or "json_object" in dropped:
        return None
    if "json_schema" in dropped:
        return {"type": "json_object"}
    schema = {"name": prompt.reply_name, "schema": dict(prompt.reply_schema), "strict": True}
    return {"type": "json_schema", "json_schema": schema}


def estimate_tokens(*messages: Message) -> int:
    """Return the approximate number of tokens in these messages."""
    return sum(-(-len(message["content"]) // CHARS_PER_TOKEN) for message in messages)


def read_answer(
    content: bytes,
    *,
    max_bytes: int,
    messages: Sequence[Message],
    seconds: float,
    shown: Callable[[str], str],
) -> Answer:
    """Return the answer in an HTTP body; ``shown`` makes a server's texts safe for a log.

    Raises
    ------
    CombeeError
        If the body is an error in disguise, or not an answer at all.
    """
    estimate = Usage(calls=1, tokens_in=estimate_tokens(*messages), seconds=seconds)
    if len(content) > max_bytes:
        usage = estimate.model_copy(update={"tokens_out": len(content) // CHARS_PER_TOKEN})
        return Answer(text="", finish_reason="length", usage=usage, oversized=True)
    body = _body(content)
    choice = _first(body.get("choices"))
    if not choice and isinstance(body.get("error"), Mapping):
        raise classify(_disguised(body["error"], shown))
    text = _text(choice)
    usage = _usage(body.get("usage"), estimate, text)
    return Answer(text=text, finish_reason=str(choice.get("finish_reason") or ""), usage=usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors:
    """Embeddings, in the order of their texts."""

    vectors: Sequence[Sequence[float]]
    usage: Usage


def read_vectors(
    content: bytes, *, texts: Sequence[str], seconds: float, shown: Callable[[str], str]
) -> Vectors:
    """Return the embeddings in an HTTP body, one for each text.

    Raises
    ------
    CombeeError
        If the body is an error in disguise, or lacks an embedding.
    """
    body = _body(content)
    listed = body.get("data")
    if not listed and isinstance(body.get("error"), Mapping):
        raise classify(_disguised(body["error"], shown))
    places = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    indexes = [item.get("index", n) for n, item in enumerate(places)]
    by_place = {n: item.get("embedding") for n, item in zip(indexes, places, strict=True) if _is_count(n)}
    vectors = [vector for n in range(len(texts)) if _is_vector(vector := by_place.get(n))]
    if len(vectors) < len(texts):
        raise CallFailedError(
            f"the model's server answers without {len(texts)} embeddings: check that it serves an embedding model",
            permanent=True,
        )
    estimate = Usage(
        calls=1, tokens_in=sum(-(-len(text) // CHARS_PER_TOKEN) for text in texts), seconds=seconds
    )
    return Vectors(
        vectors=vectors,
        usage=_usage(body.get("usage"), estimate, ""),
    )


def _is_vector(value: object) -> TypeGuard[list[float]]:
    if not isinstance(value, list) or not value:
        return False
    try:
        return all(isinstance(part, int | float) and isfinite(part) for part in value)
    except OverflowError:  # an integer of hundreds of digits
        return False


def listed_models(content: bytes) -> frozenset[str]:
    """Return the names in a list of models; none if the body is no such list."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return frozenset()
    listed = body.get("data") if isinstance(body, dict) else None
    names = (
        listing.get("id")
        for listing in (listed if isinstance(listed, list) else ())
        if isinstance(listing, dict)
    )
    return frozenset(name for name in names if isinstance(name, str))


def _body(content: bytes) -> Mapping[str, Any]:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        if content.lstrip().startswith(b"<"):
            raise CallFailedError(
                "the model's server answers with a web page; check the base URL, which usually ends in /v1",
                permanent=True,
            ) from None
        raise CallFailedError("the model's server sent a body that is cut off or not JSON") from None
    return body if isinstance(body, dict) else {}


def _first(choices: object) -> Mapping[str, Any]:
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _text(choice: Mapping[str, Any]) -> str:
    message = choice.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):  # some servers send parts
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _usage(given: object, estimate: Usage, text: str) -> Usage:
    counts = given if isinstance(given, dict) else {}
    tokens_in, tokens_out = counts.get("prompt_tokens"), counts.get("completion_tokens")
    read = tokens_in if _is_count(tokens_in) else estimate.tokens_in
    return estimate.model_copy(
        update={
            "tokens_in": read,
            "cached_tokens": min(_cached(counts), read),
            "tokens_out": tokens_out if _is_count(tokens_out) else -(-len(text) // CHARS_PER_TOKEN),
        }
    )


def _cached(counts: Mapping[str, Any]) -> int:
    """Return how many tokens came from the server's prompt cache, as far as it says so."""
    details = counts.get("prompt_tokens_details") or counts.get("input_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return cached if _is_count(cached) else 0


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT


def _disguised(error: Mapping[str, Any], shown: Callable[[str], str]) -> Refusal:
    code = error.get("code")
    status = code if isinstance(code, int) and code >= BAD_REQUEST else BAD_GATEWAY
    return Refusal(status=status, message=shown(str(error.get("message", ""))), code=shown(str(code or "")))
