"""The stand-in's use of tools: one call for each question, with arguments from the question; then it answers."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LONGEST_TEXT = 200
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a function."""

    name: str
    arguments: str
    """Arguments as JSON."""


def tool_call(body: Mapping[str, Any], question: str) -> ToolCall | None:
    """Return the call that a chat request asks for; None: it offers no tool, or already has a result."""
    offered = [
        tool["function"] for tool in body.get("tools") or () if isinstance(tool.get("function"), Mapping)
    ]
    choice = body.get("tool_choice")
    if not offered or choice == "none" or _has_result(body):
        return None
    named = choice.get("function", {}).get("name") if isinstance(choice, Mapping) else None
    function = next((tool for tool in offered if tool.get("name") == named), offered[0])
    schema = function.get("parameters") or {}
    properties: Mapping[str, Any] = schema.get("properties") or {}
    needed = schema.get("required") or tuple(properties)
    arguments = {name: _argument(properties.get(name) or {}, question) for name in needed}
    return ToolCall(name=str(function.get("name")), arguments=json.dumps(arguments, ensure_ascii=False))


def _has_result(body: Mapping[str, Any]) -> bool:
    """Return whether a tool has replied since the user's last message."""
    roles = [str(message.get("role")) for message in body.get("messages") or ()]
    last = max((at for at, role in enumerate(roles) if role == "user"), default=-1)
    return "tool" in roles[last + 1 :]


def _argument(schema: Mapping[str, Any], question: str) -> Any:
    if choices := schema.get("enum"):
        return choices[0]
    number = _NUMBER.search(question)
    match schema.get("type"):
        case "integer":
            return int(float(number[0])) if number else 0
        case "number":
            return float(number[0]) if number else 0.0
        case "boolean":
            return True
        case "array":
            return []
        case "object":
            return {}
        case _:
            return question[:LONGEST_TEXT]
