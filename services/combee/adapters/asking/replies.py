"""Replies are read from a model's answer; broken JSON is repaired, a cut-off reply is never used."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import json_repair

from combee_schemas.base import Usage
from combee_schemas.model import Prompt

CUT_OFF = frozenset({"length", "max_tokens"})
WITHHELD = frozenset({"content_filter", "error"})
REPAIRABLE_CHARS = 64 * 1024
REPAIRABLE_BRACKETS = 2000
REPAIRABLE_DEPTH = 12
"""Limits of JSON repair, whose time grows with the square: above any of them asking again is cheaper."""
MAX_CANDIDATES = 50
ECHO_CHARS = 80

_BRACKETS = re.compile(r"[{}()\[\]]")
_THOUGHTS = re.compile(r"\A\s*<(think|thinking|reasoning)>.*?</\1>", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The model's reply, not parsed yet."""

    text: str
    finish_reason: str
    usage: Usage
    oversized: bool = False
    request: str = ""
    """SHA-256 of what was asked."""


class UnusableError(Exception):
    """A reply that cannot be used; the text tells the model why."""


class TooLongError(UnusableError):
    """A reply that was cut off, at the model's limit or ours."""


def read_reply(answer: Answer, prompt: Prompt) -> Mapping[str, Any]:
    """Return the reply's body: an object that fits the schema, or ``text`` where free text was asked for.

    Raises
    ------
    UnusableError
        If it was cut off, is empty, is no JSON object, or lacks something the schema requires.
    """
    _check_complete(answer)
    text = _THOUGHTS.sub("", answer.text).strip()
    if not text:
        raise UnusableError("it was empty")
    if not prompt.reply_schema:
        problem = prompt.check(text) if prompt.check else None
        if problem is not None:
            raise UnusableError(problem)
        return {"text": _encodable(text)}
    body = _whole(text, prompt) or _inside(_without_echo(text, prompt), prompt)
    return _plain(body)


def read_small_reply(answer: Answer, prompt: Prompt) -> Mapping[str, Any] | None:
    """Return the body of a small valid reply; None for any other reply, which `read_reply` handles.

    Raises
    ------
    UnusableError
        If it was cut off or withheld.
    """
    _check_complete(answer)
    if not prompt.reply_schema or len(answer.text) > REPAIRABLE_CHARS:
        return None
    body = _whole(_THOUGHTS.sub("", answer.text), prompt)
    return None if body is None else _plain(body)


def misfit(body: object, prompt: Prompt) -> str | None:
    """Return what keeps ``body`` from fitting the schema's top level, or None."""
    schema = prompt.reply_schema
    if not isinstance(body, dict):
        return "it was not one JSON object"
    missing = [
        str(name) for name in schema.get("required", ()) if name not in body and name not in prompt.optional
    ]
    if missing:
        return f"it lacked {', '.join(missing)}"
    rules = schema.get("properties", {}).items()
    lists = {name for name, rule in rules if isinstance(rule, Mapping) and rule.get("type") == "array"}
    wrong = sorted(name for name in lists if name in body and not isinstance(body[name], list))
    return f"these must be lists: {', '.join(wrong)}" if wrong else None


def _check_complete(answer: Answer) -> None:
    if answer.oversized:
        raise TooLongError("it was far too long; answer much shorter")
    if answer.finish_reason in CUT_OFF:
        raise TooLongError("it was cut off at the length limit; answer shorter")
    if answer.finish_reason in WITHHELD:
        raise UnusableError("it was withheld or broken off")


def _whole(text: str, prompt: Prompt) -> dict[str, Any] | None:
    try:
        body = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) and misfit(body, prompt) is None else None


def _without_echo(text: str, prompt: Prompt) -> str:
    # An example in the instructions has the right shape: an echo of it is no answer.
    rest = text.replace(prompt.system, "").replace(prompt.user, "")
    if prompt.system and prompt.system[:ECHO_CHARS] in rest:
        raise UnusableError("it repeated the instructions")
    return rest


def _inside(text: str, prompt: Prompt) -> dict[str, Any]:
    start, end = text.find("{"), text.rfind("}")
    if start < 0:
        raise UnusableError("it held no JSON object")
    tail = text[start:]
    if any(tail.count(opening) > tail.count(closing) for opening, closing in ("{}", "[]")):
        raise UnusableError("its JSON was not closed")
    fitting = [body for body in _objects(tail) if misfit(body, prompt) is None]
    body = fitting[-1] if fitting else _repaired(text[start : end + 1])
    problem = misfit(body, prompt)
    if problem is not None:
        raise UnusableError(problem)
    return dict(body)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    position, tries = text.find("{"), 0
    while position >= 0 and tries < MAX_CANDIDATES:
        tries += 1
        try:
            body, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            end = position + 1
        else:
            yield body
        position = text.find("{", end)


def _repaired(text: str) -> Any:
    if not _is_repairable(text):
        raise UnusableError("it was not valid JSON")
    try:
        return json_repair.loads(text, skip_json_loads=True)
    except (ValueError, RecursionError):
        raise UnusableError("it was not valid JSON") from None


def _is_repairable(text: str) -> bool:
    if len(text) > REPAIRABLE_CHARS or sum(map(text.count, "{[(")) > REPAIRABLE_BRACKETS:
        return False
    depths = accumulate(1 if bracket in "{[(" else -1 for bracket in _BRACKETS.findall(text))
    return max(depths, default=0) <= REPAIRABLE_DEPTH


def _plain(body: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        text = json.dumps(body, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        raise UnusableError("it held numbers or nesting beyond what JSON allows") from None
    encodable = _encodable(text)
    return body if encodable == text else dict(json.loads(encodable))


def _encodable(text: str) -> str:
    # A lone surrogate is valid JSON and an error in every codec further on.
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
