"""What a chat completion says, whole or in pieces; read with ``getattr``, because any library's will do."""

import json
from collections.abc import Mapping
from typing import Any


def answer_of(reply: Any) -> str:
    """Return the text of the first choice; calls of tools as JSON."""
    choices = getattr(reply, "choices", None)
    if not choices:
        return ""
    message = getattr(choices[0], "message", None)
    said = getattr(message, "content", None) or getattr(message, "refusal", None) or ""
    calls = getattr(message, "tool_calls", None) or ()
    told = [_function(one) for one in calls]
    parts = [str(said) if said else "", json.dumps(told, ensure_ascii=False) if told else ""]
    return "\n".join(part for part in parts if part)


def _function(call: Any) -> dict[str, str]:
    function = getattr(call, "function", None)
    return {
        "name": str(getattr(function, "name", "") or ""),
        "arguments": str(getattr(function, "arguments", "") or ""),
    }


def metadata_of(reply: Any, model: str) -> Mapping[str, str]:
    """Return OpenTelemetry's names for what is known of a call (GenAI semantic conventions)."""
    usage = getattr(reply, "usage", None)
    choices = getattr(reply, "choices", None)
    found = {
        "gen_ai.request.model": model,
        "gen_ai.response.model": getattr(reply, "model", None),
        "gen_ai.response.finish_reasons": getattr(choices[0], "finish_reason", None) if choices else None,
        "gen_ai.usage.input_tokens": getattr(usage, "prompt_tokens", None),
        "gen_ai.usage.output_tokens": getattr(usage, "completion_tokens", None),
    }
    return {name: str(value) for name, value in found.items() if value not in (None, "")}
