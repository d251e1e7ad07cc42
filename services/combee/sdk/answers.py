"""What a model's reply says, whole or in pieces; read with ``getattr``, because any library's will do."""

import json
from collections.abc import Mapping, Sequence
from typing import Any


def answer_of(reply: Any) -> str:
    """Return the text of a response, or of a completion's first choice; calls of tools as JSON."""
    choices = getattr(reply, "choices", None)
    if choices is None:
        items = getattr(reply, "output", None) or ()
        return _told(
            getattr(reply, "output_text", None) or _output_text(items),
            [one for one in items if getattr(one, "type", "") == "function_call"],
        )
    if not choices:
        return ""
    message = getattr(choices[0], "message", None)
    calls = getattr(message, "tool_calls", None) or ()
    return _told(
        getattr(message, "content", None) or getattr(message, "refusal", None),
        [getattr(one, "function", None) for one in calls],
    )


def _output_text(items: Sequence[Any]) -> str:
    """Return what a response says; the library adds the field, the wire has only the items."""
    parts = (part for item in items for part in getattr(item, "content", None) or ())
    return "".join(part.text for part in parts if getattr(part, "type", "") == "output_text")


def _told(said: Any, functions: Sequence[Any]) -> str:
    told = [_function(one) for one in functions]
    parts = [str(said) if said else "", json.dumps(told, ensure_ascii=False) if told else ""]
    return "\n".join(part for part in parts if part)


def _function(function: Any) -> dict[str, str]:
    return {
        "name": str(getattr(function, "name", "") or ""),
        "arguments": str(getattr(function, "arguments", "") or ""),
    }


def metadata_of(reply: Any, model: str) -> Mapping[str, str]:
    """Return OpenTelemetry's names for what is known of a call (GenAI semantic conventions)."""
    usage = getattr(reply, "usage", None)
    choices = getattr(reply, "choices", None)
    reason = getattr(choices[0], "finish_reason", None) if choices else getattr(reply, "status", None)
    found = {
        "gen_ai.request.model": model,
        "gen_ai.response.model": getattr(reply, "model", None),
        "gen_ai.response.finish_reasons": reason,
        "gen_ai.usage.input_tokens": _count(usage, "input_tokens", "prompt_tokens"),
        "gen_ai.usage.output_tokens": _count(usage, "output_tokens", "completion_tokens"),
    }
    return {name: str(value) for name, value in found.items() if value not in (None, "")}


def _count(usage: Any, *names: str) -> Any:
    return next((count for name in names if (count := getattr(usage, name, None)) is not None), None)
