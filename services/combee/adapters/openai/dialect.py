"""The request as this server takes it: what it refuses by name is given up, one thing at a time."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from combee.adapters.openai.faults import RefusedError
from combee_schemas.model import Prompt

_FORMAT = re.compile(r"response_format|json|schema|grammar|structured")
_OPTIONS = ("temperature", "seed", "max_tokens", "max_completion_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is asked of the model with every prompt; None leaves it to the server."""

    model: str
    max_output_tokens: int | None
    temperature: float | None
    seed: int | None


def request(options: Options, prompt: Prompt, given_up: frozenset[str]) -> dict[str, Any]:
    """Return the parameters of a call, its messages aside."""
    newer_name = "max_tokens" in given_up
    wanted = {
        "temperature": options.temperature,
        "seed": options.seed,
        "max_completion_tokens" if newer_name else "max_tokens": options.max_output_tokens,
        "response_format": _response_format(prompt, given_up),
    }
    kept = {name: value for name, value in wanted.items() if value is not None and name not in given_up}
    return {"model": options.model} | kept


def concession(sent: Mapping[str, Any], refused: RefusedError) -> str | None:
    """Return the one thing to give up before asking again, or None if the prompt itself is refused."""
    for name in _OPTIONS:
        if name in sent and re.search(rf"\b{name}\b", refused.about):
            return name
    if "response_format" in sent and _FORMAT.search(refused.about):
        return str(sent["response_format"]["type"])
    return None


def _response_format(prompt: Prompt, given_up: frozenset[str]) -> dict[str, Any] | None:
    if not prompt.reply_schema or "json_object" in given_up:
        return None
    if "json_schema" in given_up:
        return {"type": "json_object"}
    schema = {"name": prompt.reply_name, "schema": dict(prompt.reply_schema), "strict": True}
    return {"type": "json_schema", "json_schema": schema}
